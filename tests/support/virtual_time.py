"""An event loop whose time moves only when everyone waits: hours pass in milliseconds.

Nothing is late and nothing races the wall clock, so a test can say to the second when something
happens. Only code that reaches time through `Clock` and `asyncio` can run on it; real sockets to
other processes cannot.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(RuntimeError):
    """Every task waits for something that no timer will bring."""


class _NumberedTask(asyncio.Task[Any]):
    """Hashed by its number: sets of tasks, as task groups keep them, have the same order in every process."""

    _made = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _NumberedTask._made += 1
        self._number = _NumberedTask._made
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class _Handle:
    """What runs later: asyncio's own kind, without what only debugging needs."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args: tuple[Any, ...] = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._cancelled


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at second 0 and jumps from timer to timer.

    Timers are kept as tuples and sockets are asked only before time moves, because a simulated run is little
    else than timers. Of timers for the same moment the one set first goes first.
    """

    _ready: deque[Any]
    _stopping: bool
    _selector: selectors.BaseSelector
    _process_events: Callable[[list[tuple[selectors.SelectorKey, int]]], None]

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timers_set = 0
        _NumberedTask._made = 0
        super().__init__()
        self._sockets = self._selector.get_map()
        self.set_task_factory(self._make_task)

    def _make_task(self, _: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return _NumberedTask(coro, loop=self, **options)

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        timer = _Handle(callback, args, copy_context() if context is None else context)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, timer))
        return timer

    async def rest(self, seconds: float) -> None:
        """As `asyncio.sleep`, which asks the operating system which loop it is on."""
        over = self.create_future()
        timer = self.call_later(seconds, _end, over)
        try:
            await over
        finally:
            timer.cancel()

    def _run_once(self) -> None:
        """What is ready, then whatever is next; replaces asyncio's, which `run_forever` calls for ever."""
        ready = self._ready
        while True:
            if not ready and not self._stopping and not self._heard_from_outside():
                self._jump_to_the_next_timer()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "a callback failed", "exception": error})
            if self._stopping:
                return

    def _heard_from_outside(self) -> bool:
        """Whether a socket has something to say; the loop's own, which only threads use, does not count."""
        if len(self._sockets) == 1:
            return False
        events = self._selector.select(0)
        self._process_events(events)
        return bool(events)

    def _jump_to_the_next_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            raise Deadlock("every task waits and no timer is set")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heappop(timers)[2])


def _end(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


class VirtualClock:
    """The clock of whatever runs on a `VirtualTimeLoop`: of the given one, or of the one that is asking."""

    def __init__(self, loop: VirtualTimeLoop | None = None, beginning: datetime = BEGINNING) -> None:
        self._loop = loop
        self._beginning = beginning
        self.monotonic: Callable[[], float] = loop.time if loop else lambda: asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return self._beginning + timedelta(seconds=self.monotonic())

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._loop.rest(seconds) if self._loop is not None and seconds > 0 else asyncio.sleep(seconds)


class WrongClock(VirtualClock):
    """The clock of a host that is ahead by so much."""

    def __init__(self, ahead: timedelta) -> None:
        super().__init__()
        self._ahead = ahead

    def now(self) -> datetime:
        return super().now() + self._ahead


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in as little real time as the work itself needs."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
