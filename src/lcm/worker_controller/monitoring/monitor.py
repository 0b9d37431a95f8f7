"""One worker's WebSocket connection: login, connect, receive, detect failures, reconnect.

    CONNECTING ─> AUTHENTICATING ─> CONNECTED ─┐ any end
         any failure ┐                         v
                     └──────────────────> RECONNECTING ─> CONNECTED
                                               │ three failures in a row, or a refused login
                                               v
                                             FAILED ── the next resync tries again ─> CONNECTED

An open socket proves nothing: CONNECTED begins with the first event. There is no timer per frame:
one sweep calls `check` of all monitors, which detects silence.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, Protocol

import msgspec
import structlog

from lcm.cml.session import CmlSession
from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.domain.errors import CertificateChanged, CredentialsRefused, LcmError
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import ActivityEvent, LabChange, MonitorState, SampleSource
from lcm.rest.schemas import ActivityReport, WebSocketReport
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.handshake_limiter import HandshakeLimiter
from lcm.worker_controller.monitoring.protocol import LiveProtocol, SystemStats, activity_of
from lcm.worker_controller.monitoring.version import LiveFeed, live_feed_of
from lcm.worker_controller.ports import MonitorTarget, WebSocket, WebSockets

log = structlog.get_logger(__name__)

UNAUTHORIZED: Final = 3000
_BAD_TOKEN: Final = frozenset({UNAUTHORIZED, 1008})
"""Close codes after which the token is not used again."""


class LiveSink(Protocol):
    """Takes the reports of monitors, without waiting."""

    def add_change(self, change: LabChange) -> None: ...

    def add_activity(self, activity_log: ActivityLog) -> None: ...

    def set_status(self, worker_id: WorkerId, report: WebSocketReport) -> None: ...


class _Kind(Enum):
    BROKEN = "broken"
    UNAUTHORIZED = "unauthorized"
    AUTH_FAILED = "auth_failed"
    CERTIFICATE_CHANGED = "certificate_changed"
    RENEWAL = "renewal"


@dataclass(frozen=True)
class _End:
    """How a connection, or the attempt at one, ended."""

    kind: _Kind
    detail: str


class _Link:
    """The listener of one connection. Once it has ended it ignores whatever still arrives."""

    __slots__ = (
        "_feed",
        "_on_first_event",
        "connected_at",
        "ended",
        "on_message",
        "opened_at",
        "pinged_at",
        "renew_at",
        "socket",
    )

    def __init__(self, feed: Callable[[bytes], bool], on_first_event: Callable[[], None]) -> None:
        self._feed = feed
        self._on_first_event = on_first_event
        self.on_message: Callable[[bytes], object] = self._await_first_event
        self.ended: asyncio.Future[_End] = asyncio.get_running_loop().create_future()
        self.socket: WebSocket | None = None
        self.opened_at = 0.0
        self.renew_at = float("inf")
        self.connected_at: float | None = None
        self.pinged_at: float | None = None

    def _await_first_event(self, payload: bytes) -> None:
        if self._feed(payload):
            self.on_message = self._feed
            self._on_first_event()

    def on_pong(self) -> None:
        self.pinged_at = None

    def on_closed(self, code: int, reason: str) -> None:
        kind = _Kind.UNAUTHORIZED if code in _BAD_TOKEN else _Kind.BROKEN
        self.end(kind, f"CLOSE {code} {reason}".rstrip())

    def end(self, kind: _Kind, detail: str) -> None:
        self.on_message = _ignore
        if not self.ended.done():
            self.ended.set_result(_End(kind, detail))

    def close(self) -> None:
        self.on_message = _ignore
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def _ignore(_: bytes) -> None:
    """Drop a late frame of a connection that has ended: it says nothing about the worker now."""


class ReceiveWatermark:
    """Until when every received frame was processed, for all connections of a process.

    If the process was stopped for a while, earlier frames may still be unread at the next tick: at the one
    after that they have been processed.
    """

    __slots__ = ("_ticked_at", "complete_until")

    def __init__(self, now: float) -> None:
        self._ticked_at = self.complete_until = now

    def tick(self, now: float) -> None:
        self.complete_until, self._ticked_at = self._ticked_at, now


class CmlWebSocketMonitor:
    """Monitors one server until it is stopped."""

    def __init__(
        self,
        target: MonitorTarget,
        *,
        session: CmlSession,
        websockets: WebSockets,
        limiter: HandshakeLimiter,
        activity_log: ActivityLog,
        sink: LiveSink,
        config: MonitoringConfig,
        clock: Clock,
        chance: random.Random,
        watermark: ReceiveWatermark,
        on_delivery: Callable[[bool, float], None],
    ) -> None:
        """`on_delivery` is called when events begin and when they stop, with the time of the last one."""
        self.target = target
        self._watermark = watermark
        self.activity_log = activity_log
        self.session = session
        self._websockets = websockets
        self._limiter = limiter
        self._sink = sink
        self._config = config
        self._clock = clock
        self._chance = chance
        self._on_delivery = on_delivery
        self._backoff = Backoff(max_seconds=config.reconnect_max_interval)
        self.protocol = LiveProtocol(
            target.worker_id, clock.monotonic, clock.now, self._on_change, activity_log.messages
        )
        self._feed = live_feed_of(target.cml_version) if config.websocket_enabled else LiveFeed.NO
        self.state = MonitorState.DISABLED if self._feed is LiveFeed.NO else MonitorState.CONNECTING
        self.reason = ""
        self._link: _Link | None = None
        self._failures = 0
        self._unauthorized = 0
        self._waits = 0
        self._retry: asyncio.Event | None = None
        """Set only while `run` waits for it."""
        self._retry_not_before = 0.0
        self._reported_state: MonitorState | None = None
        self.lost_at = clock.monotonic()
        self._token_newer_than = float("-inf")
        self.has_connected = False

    # Queries.

    @property
    def worker_id(self) -> WorkerId:
        return self.target.worker_id

    @property
    def is_connected(self) -> bool:
        return self.state is MonitorState.CONNECTED

    @property
    def latest_system_stats(self) -> SystemStats | None:
        return self.protocol.latest_system_stats

    @property
    def last_message_at(self) -> float | None:
        """Monotonic time of the last valid frame."""
        return self.protocol.last_message_at

    @property
    def recent_activity_events(self) -> list[ActivityEvent]:
        return [entry.event for entry in self.activity_log.recent]

    def drain_activity_events(self) -> list[ActivityReport]:
        """The reports that the control plane has not confirmed; they stay until `activity_log.confirm`."""
        return list(self.activity_log.unconfirmed_reports())

    @property
    def connected_seconds(self) -> float | None:
        link = self._link
        if not self.is_connected or link is None or link.connected_at is None:
            return None
        return self._clock.monotonic() - link.connected_at

    # Commands.

    def retry(self) -> None:
        """Connect again, at each resync, unless it is too soon after a refused login."""
        if self._retry is not None and self._clock.monotonic() >= self._retry_not_before:
            self._retry.set()

    def check(self, now: float) -> float:
        """Detect what a socket does not report: silence, a lost peer, a token about to expire.

        Returns until when the connection as it is needs no other check.
        """
        link = self._link
        if link is None or link.socket is None or link.ended.done():
            return now
        if link.connected_at is None:
            if now - link.opened_at >= self._config.first_event_within:
                link.end(_Kind.BROKEN, f"no event within {self._config.first_event_within:g} s of the login")
            return now
        fine_until = min(self.protocol.stats_at + self._config.ping_after, link.renew_at)
        if now < fine_until and link.pinged_at is None:
            return fine_until
        silent_seconds = now - max(link.connected_at, self.protocol.last_message_at or 0.0)
        if silent_seconds >= self._config.health_timeout:
            link.end(_Kind.BROKEN, f"no frame for {silent_seconds:.0f} s")
        elif link.pinged_at is not None and now - link.pinged_at >= self._config.pong_within:
            link.end(_Kind.BROKEN, "no answer to a ping")
        elif now >= link.renew_at:
            link.end(_Kind.RENEWAL, "the token is about to expire")
        elif link.pinged_at is None and silent_seconds >= self._config.ping_after:
            link.pinged_at = now
            link.socket.ping()
        return now

    def close(self) -> None:
        """Close the connection at once; later frames are ignored."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self.state = MonitorState.DISCONNECTED

    def report_disabled(self) -> None:
        """Report that there is no connection and will be none, whatever the record says of an earlier one."""
        is_too_old = self._config.websocket_enabled
        version = self.target.cml_version
        self.reason = f"CML {version} has no WebSocket feed" if is_too_old else "CML_WEBSOCKET_ENABLED is off"
        self._report_state()

    def report_stopped(self, reason: str) -> None:
        """Report the end of a connection that was closed on purpose, if it was ever reported."""
        if self._reported_state is not None:
            self.state, self.reason = MonitorState.DISCONNECTED, reason
            self._report_state()

    # The lifecycle of the connection.

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        try:
            while True:
                end, held_seconds = await self._hold_connection()
                self.lost_at = self._token_newer_than = self._clock.monotonic()
                if self._record_end(end, held_seconds):
                    await self._wait_for_retry()
                elif end.kind is not _Kind.RENEWAL:
                    await self._clock.sleep(self._next_delay())
                self.activity_log.reconnects += 1
        finally:
            self.close()

    async def _hold_connection(self) -> tuple[_End, float]:
        """Connect and receive until it ends. Returns how, and for how many seconds events had come."""
        link = self._link = _Link(self.protocol.feed, self._on_first_event)
        try:
            async with self._limiter.slot():
                token = await self.session.token(newer_than=self._token_newer_than)
                link.renew_at = self.session.renew_at
                link.socket = await self._websockets.connect(
                    self.target.server.host, self.session.pinned_sha256, link
                )
            link.opened_at = self._clock.monotonic()
            if self.state is MonitorState.CONNECTING:
                self.state = MonitorState.AUTHENTICATING
            link.socket.send(msgspec.json.encode({"token": token}))
            end = await link.ended
        except CredentialsRefused as error:
            return _End(_Kind.AUTH_FAILED, str(error)), 0.0
        except CertificateChanged as error:
            self.session.is_certificate_refused = True
            return _End(_Kind.CERTIFICATE_CHANGED, str(error)), 0.0
        except LcmError as error:
            return _End(_Kind.BROKEN, str(error)), 0.0
        finally:
            link.close()
            self._link = None
        if end.kind is _Kind.UNAUTHORIZED:
            self.session.discard(token)
        held = self._clock.monotonic() - link.connected_at if link.connected_at is not None else 0.0
        return end, held

    def _on_first_event(self) -> None:
        link = self._link
        if link is None:
            return
        link.connected_at = self._clock.monotonic()
        self.protocol.begin()
        self.has_connected = True
        self.state, self.reason = MonitorState.CONNECTED, ""
        self.session.is_certificate_refused = False
        log.info("websocket connected", worker_id=self.worker_id, host=self.target.server.host)
        self._on_delivery(True, link.connected_at)
        self._report_state()

    def _record_end(self, end: _End, held_seconds: float) -> bool:
        """Count, log and report the end of a connection. Returns whether the monitor is FAILED now."""
        if held_seconds >= self._config.stable_after:
            self._failures = self._unauthorized = self._waits = 0
        else:
            self._failures += end.kind is not _Kind.RENEWAL
        self._unauthorized = self._unauthorized + 1 if end.kind is _Kind.UNAUTHORIZED else 0
        is_refused = end.kind is _Kind.AUTH_FAILED or self._unauthorized >= 2
        is_hopeless = self._feed is LiveFeed.MAYBE and not self.has_connected
        has_failed = (
            is_refused
            or is_hopeless
            or end.kind is _Kind.CERTIFICATE_CHANGED
            or self._failures >= self._config.max_reconnect_attempts
        )
        kind = _Kind.AUTH_FAILED if is_refused else end.kind
        log.warning(
            "websocket failed" if has_failed else "websocket lost",
            worker_id=self.worker_id,
            host=self.target.server.host,
            reason=kind.value,
            detail=end.detail,
            failures=self._failures,
        )
        self._on_delivery(False, min(self.protocol.last_message_at or 0.0, self._watermark.complete_until))
        if not has_failed:
            if end.kind is not _Kind.RENEWAL:
                self.state, self.reason = MonitorState.RECONNECTING, end.detail
                self._report_state()
            return False
        self.state, self.reason = MonitorState.FAILED, f"{kind.value}: {end.detail}"
        pause = self._config.auth_retry_after if is_refused else 0.0
        self._retry_not_before = float("inf") if is_hopeless else self._clock.monotonic() + pause
        self._report_state()
        return True

    async def _wait_for_retry(self) -> None:
        self._retry = asyncio.Event()
        try:
            await self._retry.wait()
        finally:
            self._retry = None
        self._unauthorized = 0

    def _next_delay(self) -> float:
        """1, 2, 4 … seconds up to the cap, minus a random part: not all at once."""
        delay = self._backoff.delay_seconds(self._waits)
        self._waits += 1
        return delay * self._chance.uniform(0.75, 1.0)

    def _on_change(self, change: LabChange) -> None:
        self._sink.add_change(change)
        event = activity_of(change)
        if event is not None:
            late_by = timedelta(seconds=self._clock.monotonic() - self._watermark.complete_until)
            self.activity_log.add(event, SampleSource.WEBSOCKET, late_by)
            self._sink.add_activity(self.activity_log)

    def _report_state(self) -> None:
        """Report the state of the connection, once for each change; the control plane publishes it."""
        if self.state is self._reported_state:
            return
        self._reported_state = self.state
        self.activity_log.statuses += 1
        now = self._clock.now()
        self._sink.set_status(
            self.worker_id,
            WebSocketReport(
                connected=self.is_connected,
                status=self.state,
                reason=self.reason,
                connected_at=now if self.is_connected else None,
                disconnected_at=None if self.is_connected else now,
                stream=self.activity_log.stream,
                sequence=self.activity_log.statuses,
            ),
        )
