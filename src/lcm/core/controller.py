"""The hosted services of a controller: each puts the loop, the election and the key watch together.

    ReconciliationHostedService   the reconcile loop
    LeaderElectedHostedService    … only while this instance leads
    WatchTriggeredHostedService   … woken by changes in the coordination store

The parts are made in a process's `main.py`; here is only what they do to each other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import structlog

from lcm.core.election import ClaimEpoch, Election
from lcm.core.hosted_service import HostedService, contains
from lcm.core.key_watch import KeyWatch
from lcm.core.kv.port import Change, ChangeKind
from lcm.core.loop import ReconcileLoop

log = structlog.get_logger(__name__)

T = TypeVar("T")

Work = Callable[[], Awaitable[None]]


class ReconciliationHostedService(HostedService, Generic[T]):
    """Reconciles for the life of the process."""

    def __init__(self, name: str, loop: ReconcileLoop[T]) -> None:
        self.name = name
        self.loop = loop

    async def run(self) -> None:
        await self.loop.run()


class LeaderElectedHostedService(ReconciliationHostedService[T]):
    """Reconciles only while this instance leads. Losing the lead stops everything it started, at once."""

    def __init__(
        self,
        name: str,
        loop: ReconcileLoop[T],
        election: Election,
        claim_epoch: ClaimEpoch,
        *,
        while_leading: Mapping[str, Work] | None = None,
        reset: Callable[[], None] = lambda: None,
    ) -> None:
        """`while_leading` runs beside the loop. `reset` drops what was learned under another leadership."""
        super().__init__(name, loop)
        self.election = election
        self._claim_epoch = claim_epoch
        self._while_leading = dict(while_leading or {})
        self._reset = reset

    async def run(self) -> None:
        await self.election.run(self._claim_epoch, self.lead)

    async def lead(self) -> None:
        """Everything a leader does; cancelled when the lead is lost."""
        self._reset()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._first_resync(), name="first-resync")
                for name, work in self._while_leading.items():
                    tasks.create_task(_run(work), name=name)
                self._start_loop(tasks)
        finally:
            self._reset()

    def _start_loop(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.loop.run(), name="loop")

    async def _first_resync(self) -> None:
        """Reconcile everything once, settled or not: anything may have changed while no instance led."""
        await self.loop.clock.sleep(self.election.config.resync_delay)
        attempt = 0
        while True:
            try:
                await self.loop.resync(everything=True)
                return
            except Exception as error:
                if contains(error, self.loop.reconciler.fatal):
                    raise
                log.warning("first resync failed", error=str(error))
            await self.loop.clock.sleep(self.loop.backoff.delay_seconds(attempt))
            attempt += 1


class WatchTriggeredHostedService(LeaderElectedHostedService[T]):
    """Reconciles a resource within milliseconds of a change of its keys."""

    def __init__(
        self,
        name: str,
        loop: ReconcileLoop[T],
        election: Election,
        watch: KeyWatch,
        claim_epoch: ClaimEpoch,
        *,
        while_leading: Mapping[str, Work] | None = None,
        reset: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name, loop, election, claim_epoch, while_leading=while_leading, reset=reset)
        self.watch = watch

    def _start_loop(self, tasks: asyncio.TaskGroup) -> None:
        if self.watch.is_enabled:
            tasks.create_task(self.watch.run(self._on_change, self._resync), name="watch")
        tasks.create_task(self.loop.run(lambda: self.watch.is_watching), name="loop")

    def _on_change(self, resource_id: str, change: Change, after_seconds: float) -> None:
        if change.kind is ChangeKind.DELETE:
            self.loop.forget(resource_id)
        self.loop.wake(resource_id, after_seconds)

    async def _resync(self) -> None:
        await self.loop.resync(everything=True)


async def _run(work: Work) -> None:
    await work()
