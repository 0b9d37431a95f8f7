"""Watches a prefix of the coordination store: a change of a key wakes the resource it belongs to.

The watch only says that something changed. Losing it costs speed, not correctness: polling goes on (and is
switched on if it was off). A new watch resumes where the last one broke and begins with a resync.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from lcm.core.clock import Clock
from lcm.core.debounce import Debounce
from lcm.core.hosted_service import contains
from lcm.core.kv.port import Change, Compacted, Kv, KvUnavailable
from lcm.core.timeouts import timeout

log = structlog.get_logger(__name__)

GIVEN_UP_RETRY_SECONDS = 60.0
"""After the last quick attempt to watch again, one try a minute."""


STEADY_WATCH_SECONDS = 60.0
"""A watch that held this long was a success: the delays start over when it breaks."""


@dataclass(frozen=True, kw_only=True)
class WatchConfig:
    """Which keys wake the loop, and how a lost watch is started again."""

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


OnChange = Callable[[str, Change, float], None]
"""Called with the id of the resource, the change, and the seconds to wait before the reconcile."""


class KeyWatch:
    """Turns changes under a prefix into resources to reconcile."""

    def __init__(
        self,
        config: WatchConfig,
        kv: Kv | None,
        *,
        clock: Clock,
        wakes: Callable[[Change], bool] = lambda change: True,
        fatal: tuple[type[Exception], ...] = (),
    ) -> None:
        """`wakes` leaves out changes that need no reconcile, such as the echo of our own writes."""
        self.config = config
        self.is_watching = False
        self._kv = kv
        self._clock = clock
        self._wakes = wakes
        self._fatal = fatal
        self._debounce: Debounce[str] = Debounce(config.debounce_seconds, clock)

    @property
    def is_enabled(self) -> bool:
        return self._kv is not None and self.config.enabled

    def parse_watch_key(self, key: str) -> str | None:
        """The resource a key belongs to: the first part after the prefix."""
        rest = key.removeprefix(self.config.prefix)
        return rest.split("/", 1)[0] or None if rest != key else None

    async def run(self, on_change: OnChange, resync: Callable[[], Awaitable[object]]) -> None:
        """Watch until cancelled; `resync` is called when changes may have been missed."""
        assert self._kv is not None
        attempt = 0
        seen: int | None = None  # the newest revision of a change; None if what followed is no longer kept
        while True:
            began = self._clock.monotonic()
            try:
                async with timeout(self.config.call_timeout_seconds):
                    listing = await self._kv.list_prefix(self.config.prefix)
                self.is_watching = True
                if attempt:
                    await resync()
                # A store that is behind what was seen before has lost its history: nothing to resume from.
                seen = listing.revision if seen is None else min(seen, listing.revision)
                async with aclosing(self._kv.watch_prefix(self.config.prefix, seen + 1)) as changes:
                    async for change in changes:
                        self._pass_on(change, on_change)
                        seen = change.revision
                raise KvUnavailable("the watch ended")
            except Exception as error:
                if contains(error, self._fatal):
                    raise
                if isinstance(error, Compacted):
                    seen = None
                held = self._clock.monotonic() - began >= STEADY_WATCH_SECONDS
                attempt = 1 if held else attempt + 1
                delay = self.config.reconnect_delay_seconds(attempt)
                log.warning("watch lost", error=str(error), attempt=attempt, retry_in_seconds=delay)
            finally:
                self.is_watching = False
            await self._clock.sleep(delay)

    def _pass_on(self, change: Change, on_change: OnChange) -> None:
        resource_id = self.parse_watch_key(change.key)
        if resource_id is not None and self._wakes(change):
            on_change(resource_id, change, self._debounce.delay_seconds(resource_id))
