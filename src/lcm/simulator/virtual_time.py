"""An event loop whose time moves only when everyone waits: hours pass in milliseconds.

Nothing is late and nothing races the wall clock, so a test can say to the second when something
happens. Only code that reaches time through `Clock` and `asyncio` can run on it; real sockets to
other processes cannot.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(RuntimeError):
    """Everybody waits for something that no passing of time will bring."""


class _JumpingSelector(selectors.BaseSelector):
    """Instead of sleeping until the next timer, tells the loop to be there."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready:
            if timeout is None:
                raise Deadlock("every task waits and no timer is set")
            if timeout > 0:
                self._jump(timeout)
        return ready

    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        return self._real.get_map()


class _NumberedTask(asyncio.Task[Any]):
    """Hashed by its number: sets of tasks, as task groups keep them, have the same order in every process."""

    _made = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _NumberedTask._made += 1
        self._number = _NumberedTask._made
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._now = 0.0
        _NumberedTask._made = 0
        super().__init__(_JumpingSelector(self._jump))
        self.set_task_factory(self._make_task)

    def _make_task(self, _: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _NumberedTask(coro, loop=self, **options)

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        self._now += seconds


class VirtualClock:
    """The clock of whatever runs on a `VirtualTimeLoop`."""

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in as little real time as the work itself needs."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
