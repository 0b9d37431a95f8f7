"""Waiting for a goal: resources are read after listening, so that no change is missed."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from lcm.client.aio.link import AsyncEvents
from lcm.client.calls import is_outage
from lcm.client.errors import ClientError, WaitFailed, WaitTimedOut
from lcm.client.events import LISTENING, Event
from lcm.client.goals import Standing, Versioned
from lcm.core.clock import SystemClock

V = TypeVar("V", bound=Versioned)

OnProgress = Callable[[str, Standing], None]
"""Called with the id of a resource whenever its standing has changed."""


class AsyncWait(Generic[V]):
    """Waits until resources have reached a goal: reads them after listening."""

    def __init__(
        self,
        ids: Sequence[str],
        judge: Callable[[V | None], Standing],
        find: Callable[[str], Awaitable[V | None]],
        carried: Callable[[Event], V | None],
        on_progress: OnProgress,
    ) -> None:
        self._pending = list(ids)
        self._judge = judge
        self._find = find
        self._carried = carried
        self._on_progress = on_progress
        self._found: dict[str, V | None] = {}
        self._versions: dict[str, int] = {}
        self._standings: dict[str, Standing] = {}

    async def run(
        self, clock: SystemClock, events: AsyncEvents, timeout_seconds: float
    ) -> Mapping[str, V | None]:
        deadline = clock.monotonic() + timeout_seconds
        async with events:
            while self._pending:
                event = await events.next(deadline - clock.monotonic())
                if event is None:
                    raise WaitTimedOut(f"not reached within {timeout_seconds:g} s: {self._state()}")
                if event.type in (LISTENING, "reset"):
                    await self._read_all(events)
                elif (carried := self._carried(event)) is not None and carried.id in self._pending:
                    self._learn(carried.id, carried)
        return self._found

    async def _read_all(self, events: AsyncEvents) -> None:
        for resource_id in tuple(self._pending):
            try:
                self._learn(resource_id, await self._find(resource_id))
            except ClientError as error:
                if not is_outage(error):
                    raise
                return await events.reconnect()
        return None

    def _learn(self, resource_id: str, found: V | None) -> None:
        if found is not None:
            if found.version < self._versions.get(resource_id, 0):
                return
            self._versions[resource_id] = found.version
        standing = self._judge(found)
        if standing != self._standings.get(resource_id):
            self._standings[resource_id] = standing
            self._on_progress(resource_id, standing)
        if standing.why_never:
            raise WaitFailed(standing.why_never)
        if standing.is_reached:
            self._pending.remove(resource_id)
            self._found[resource_id] = found

    def _state(self) -> str:
        unknown = Standing(False, "not read yet")
        return "; ".join(self._standings.get(each, unknown).now for each in self._pending)
