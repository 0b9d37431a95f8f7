"""Reacting to changes: a prefix of the coordination store is watched, a change wakes one key.

The watch only says "look". Losing it costs speed, not correctness: polling goes on (and is switched
on if it was off). A new watch goes on where the last one broke and begins with a look at everything.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

import structlog

from lcm.core.clock import Clock
from lcm.core.debounce import Debounce
from lcm.core.election import LeaderElectedHostedService, LeaderElectionConfig
from lcm.core.health import Health
from lcm.core.hosted_service import contains
from lcm.core.kv.port import Change, ChangeKind, Compacted, Kv, KvUnavailable
from lcm.core.reconciliation import ReconciliationConfig
from lcm.core.telemetry import Telemetry
from lcm.core.timeouts import timeout

log = structlog.get_logger(__name__)

T = TypeVar("T")

GIVEN_UP_RETRY_SECONDS = 60.0
"""After the last quick attempt to watch again, one try a minute."""


STEADY_WATCH_SECONDS = 60.0
"""A watch that held this long was a success: the delays start over when it breaks."""


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """Which keys wake the loop, and how a lost watch is won back."""

    enabled: bool = True
    prefix: str = ""
    reconnect_delay: float = 1.0
    max_reconnect_attempts: int = 10
    debounce_seconds: float = 0.5
    call_timeout_seconds: float = 2.0

    def reconnect_delay_seconds(self, attempt: int) -> float:
        """Linear, then once a minute; `attempt` counts from 1."""
        if attempt > self.max_reconnect_attempts:
            return GIVEN_UP_RETRY_SECONDS
        return self.reconnect_delay * attempt


class WatchTriggeredHostedService(LeaderElectedHostedService[T]):
    """Reconciles a resource within milliseconds of its change."""

    def __init__(
        self,
        config: ReconciliationConfig,
        election: LeaderElectionConfig,
        watch: WatchConfig,
        kv: Kv | None,
        *,
        clock: Clock,
        telemetry: Telemetry,
        health: Health,
    ) -> None:
        super().__init__(config, election, kv, clock=clock, telemetry=telemetry, health=health)
        self.watch = watch
        self.is_watching = False
        self._debounce: Debounce[str] = Debounce(watch.debounce_seconds, clock)

    def parse_watch_key(self, key: str) -> str | None:
        """The resource a key belongs to: the first part after the prefix."""
        rest = key.removeprefix(self.watch.prefix)
        return rest.split("/", 1)[0] or None if rest != key else None

    def wakes(self, change: Change) -> bool:
        """Whether this change is worth a look; a subclass ignores the echo of its own writes."""
        return True

    def is_polling(self) -> bool:
        return super().is_polling() or not self.is_watching

    async def lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self.kv is not None and self.watch.enabled:
                tasks.create_task(self._watch_forever(self.kv), name="watch")
            tasks.create_task(super().lead(), name="reconciliation")

    async def _watch_forever(self, kv: Kv) -> None:
        attempt = 0
        told: int | None = None  # the newest revision of a change; None if what followed is no longer kept
        while True:
            began = self.clock.monotonic()
            try:
                async with timeout(self.watch.call_timeout_seconds):
                    listing = await kv.list_prefix(self.watch.prefix)
                self.is_watching = True
                if attempt:
                    await self.sweep(everything=True)  # changes may have passed while nobody watched
                # A store that is behind what it told before has lost its history: nothing to go on from.
                told = listing.revision if told is None else min(told, listing.revision)
                async with aclosing(kv.watch_prefix(self.watch.prefix, told + 1)) as changes:
                    async for change in changes:
                        self._on_change(change)
                        told = change.revision
                raise KvUnavailable("the watch ended")
            except Exception as error:
                if contains(error, self.fatal):
                    raise
                if isinstance(error, Compacted):
                    told = None
                held = self.clock.monotonic() - began >= STEADY_WATCH_SECONDS
                attempt = 1 if held else attempt + 1
                delay = self.watch.reconnect_delay_seconds(attempt)
                log.warning("watch lost", error=str(error), attempt=attempt, retry_in_seconds=delay)
            finally:
                self.is_watching = False
            await self.clock.sleep(delay)

    def _on_change(self, change: Change) -> None:
        resource_id = self.parse_watch_key(change.key)
        if resource_id is None or not self.wakes(change):
            return
        if change.kind is ChangeKind.DELETE:
            self.forget(resource_id)
        self._listed.pop(resource_id, None)
        self.queue.add_after(resource_id, self._debounce.delay_seconds(resource_id))
