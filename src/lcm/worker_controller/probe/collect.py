"""Collect the evidence: a few requests, one login, and the live feed for as long as is asked.

Nothing is changed on the server. The wrong login is of a user that does not exist, so that no account can be
locked by it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from lcm.cml.connection import CmlTransport
from lcm.cml.session import CmlSession, Credentials, always, claims_of
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.timeouts import timeout
from lcm.domain.errors import LcmError
from lcm.domain.launch import WorkerId
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.protocol import SYSTEM_STATS, SYSTEM_STATS_HEAD, LiveProtocol
from lcm.worker_controller.ports import WebSocket, WebSockets
from lcm.worker_controller.probe import evidence as asked
from lcm.worker_controller.probe.evidence import Answer, Closed, Evidence, Feed

log = structlog.get_logger(__name__)

API: Final = "/api/v0"
READ: Final = (asked.OWN, asked.STATS, asked.HEALTH, asked.LICENSING, asked.OPT_IN, asked.TELEMETRY)
"""With the token."""
SLOWEST_ANSWER_SECONDS: Final = 120.0
"""Patient: how long an answer takes is one of the questions."""
CLOSED_WITHIN_SECONDS: Final = 30.0
"""CML closes a connection without a valid token after ten seconds."""
FORGED: Final = "eyJhbGciOiJIUzI1NiJ9.e30.bm90LWEtdG9rZW4"
CHECK_SECONDS: Final = 1.0


class _EventType(msgspec.Struct, frozen=True):
    event_type: str = ""


class _Listener:
    """One WebSocket: what comes, and how it ends."""

    def __init__(self, clock: Clock, on_frame: Callable[[bytes], None]) -> None:
        self._clock = clock
        self.on_message: Callable[[bytes], object] = on_frame
        self.opened_at = clock.monotonic()
        self.ended = asyncio.Event()
        self.closed: Closed | None = None
        self.pinged_at: float | None = None
        self.slowest_pong = 0.0

    def on_pong(self) -> None:
        if self.pinged_at is not None:
            self.slowest_pong = max(self.slowest_pong, self._clock.monotonic() - self.pinged_at)
            self.pinged_at = None

    def on_closed(self, code: int, reason: str) -> None:
        self.closed = Closed(code, self._clock.monotonic() - self.opened_at)
        self.ended.set()


class CmlProbe:
    """Probes one server, once."""

    def __init__(
        self,
        transport: CmlTransport,
        websockets: WebSockets,
        host: str,
        credentials: Credentials,
        *,
        clock: Clock,
        ids: Ids,
        limits: MonitoringConfig,
    ) -> None:
        self._transport = transport
        self._websockets = websockets
        self._session = CmlSession(transport, always(credentials), host, None, clock)
        self._host = host
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._found = Evidence()

    async def collect(self, minutes: float) -> Evidence:
        """Return the evidence; whatever fails is part of it."""
        found = self._found
        found.minutes = minutes
        await self._ask(asked.INFORMATION, "GET", asked.INFORMATION)
        stranger = {"username": f"lcm-probe-{self._ids.new_id()}", "password": self._ids.new_id()}
        await self._ask(asked.STRANGER, "POST", "authenticate", body=msgspec.json.encode(stranger))
        await self._ask(asked.FORGED, "GET", asked.OWN, token=FORGED)
        token = await self._log_in()
        if token is None:
            return found
        for name in READ:
            await self._ask(name, "GET", name, token=token)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._noted("feed", self._hold(token, minutes * 60)))
            tasks.create_task(self._noted("forged token", self._show_forged_token()))
            tasks.create_task(self._noted("silence", self._stay_silent()))
        await self._ask(asked.OWN_AFTERWARDS, "GET", asked.OWN, token=token)
        return found

    async def _ask(
        self, name: str, method: str, path: str, *, token: str | None = None, body: bytes | None = None
    ) -> None:
        async def ask() -> None:
            asked_at = self._clock.now()
            answer = await self._transport.request(
                method,
                self._host,
                f"{API}/{path}",
                self._session.pinned_sha256,
                token=token,
                body=body,
                timeout_seconds=SLOWEST_ANSWER_SECONDS,
            )
            self._session.pinned_sha256 = self._session.pinned_sha256 or answer.certificate_sha256
            self._found.answers[name] = Answer(
                answer.status, answer.body, asked_at, self._clock.now(), answer.date
            )

        await self._noted(name, ask())

    async def _log_in(self) -> str | None:
        async def log_in() -> None:
            issued_at = self._clock.now()
            token = await self._session.token()
            self._found.has_logged_in = True
            self._found.claims = claims_of(token)
            seen = self._found.answers.get(asked.INFORMATION)
            skew = seen.server_time - seen.answered_at if seen and seen.server_time else None
            self._found.token_issued_at = issued_at + skew if skew is not None else issued_at

        await self._noted("login", log_in())
        return await self._session.token() if self._found.has_logged_in else None

    async def _noted(self, name: str, work: Awaitable[None]) -> None:
        """Do it, and note the kind of error if it cannot be done."""
        try:
            await work
        except LcmError as error:
            log.debug("request failed", request=name, error=str(error))
            self._found.failures[name] = type(error).__name__

    # The live feed.

    async def _hold(self, token: str, seconds: float) -> None:
        feed = self._found.feed = Feed()
        protocol = LiveProtocol(
            WorkerId("probe"), self._clock.monotonic, self._clock.now, lambda _: None, feed.counts
        )
        recorder = _Recorder(feed, protocol, self._clock)
        listener = _Listener(self._clock, recorder.on_frame)
        socket = await self._connect(listener)
        recorder.began_at = self._clock.monotonic()
        socket.send(msgspec.json.encode({"token": token}))
        end_at = recorder.began_at + max(seconds, self._limits.first_event_within)
        try:
            while not listener.ended.is_set() and self._clock.monotonic() < end_at:
                self._ping(listener, socket, feed)
                await self._clock.sleep(CHECK_SECONDS)
                enough = self._clock.monotonic() >= recorder.began_at + seconds
                if enough and feed.first_event_after is not None:
                    break
        finally:
            socket.close()
        feed.held_seconds = self._clock.monotonic() - recorder.began_at
        feed.closed, feed.slowest_pong = listener.closed, listener.slowest_pong
        recorder.finish()

    def _ping(self, listener: _Listener, socket: WebSocket, feed: Feed) -> None:
        now = self._clock.monotonic()
        if listener.pinged_at is not None and now - listener.pinged_at >= self._limits.pong_within:
            feed.unanswered_pings += 1
            listener.pinged_at = None
        if listener.pinged_at is None and now >= listener.opened_at + feed.pings * self._limits.ping_after:
            feed.pings += 1
            listener.pinged_at = now
            socket.ping()

    async def _show_forged_token(self) -> None:
        self._found.after_forged_token = await self._until_closed(FORGED)

    async def _stay_silent(self) -> None:
        self._found.after_silence = await self._until_closed(None)

    async def _until_closed(self, token: str | None) -> Closed | None:
        listener = _Listener(self._clock, lambda _: None)
        socket = await self._connect(listener)
        if token is not None:
            socket.send(msgspec.json.encode({"token": token}))
        try:
            async with timeout(CLOSED_WITHIN_SECONDS):
                await listener.ended.wait()
        except TimeoutError:
            socket.close()
        return listener.closed

    async def _connect(self, listener: _Listener) -> WebSocket:
        socket = await self._websockets.connect(self._host, self._session.pinned_sha256, listener)
        listener.opened_at = self._clock.monotonic()
        return socket


class _Recorder:
    """Takes the frames of the feed, as LCM's own protocol does, and measures them."""

    def __init__(self, feed: Feed, protocol: LiveProtocol, clock: Clock) -> None:
        self._feed = feed
        self._protocol = protocol
        self._clock = clock
        self._last_at: float | None = None
        self._stats_at: float | None = None
        self.began_at = clock.monotonic()

    def on_frame(self, payload: bytes) -> None:
        feed, now = self._feed, self._clock.monotonic()
        self._protocol.feed(payload)
        kind = _event_type(payload)
        feed.types[kind] += 1
        feed.largest_frame = max(feed.largest_frame, len(payload))
        if kind == SYSTEM_STATS:
            feed.fast_frames += payload.startswith(SYSTEM_STATS_HEAD)
            if self._stats_at is not None:
                feed.stats_gaps.append(now - self._stats_at)
            self._stats_at = now
        if feed.first_event_after is None:
            feed.first_event_after = now - self.began_at
        else:
            self._measure_gap(now)
        self._last_at = now

    def finish(self) -> None:
        """The silence before the end is a gap too."""
        self._measure_gap(self._clock.monotonic())

    def _measure_gap(self, now: float) -> None:
        if self._last_at is not None:
            self._feed.longest_gap = max(self._feed.longest_gap, now - self._last_at)


def _event_type(payload: bytes) -> str:
    try:
        return msgspec.json.decode(payload, type=_EventType).event_type
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
