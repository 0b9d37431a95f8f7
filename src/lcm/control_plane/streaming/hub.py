"""The event stream to browsers: every event is encoded once and shared by all subscribers.

Ids are `<boot>-<n>`. A browser that reconnects with its last id gets the missed events from a bounded
buffer, or `reset` and fresh snapshots. Load reports are collected: into batches for subscribers that want
them, otherwise into one event a second for each worker and lab. All other events are sent at once, those
within a few milliseconds in one write. Subscribers with the same filter share a channel, so that a filter
costs once and not for each of them. The outbox of a subscriber is bounded: one that does not read is sent
`reset`, and the others never wait for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.session_cache import CachedSession, SessionCache
from lcm.control_plane.records.session_stats import SessionStats
from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.control_plane.streaming.encoding import (
    EVERYTHING,
    KEEPALIVE,
    Batch,
    Event,
    EventFilter,
    Load,
    encode,
    in_pieces,
)
from lcm.control_plane.streaming.event_names import (
    SessionEvent,
    StreamEvent,
    WorkerEvent,
    definition_event_of,
    event_of,
    has_changed_queue,
    lab_event_of,
    session_event_of,
)
from lcm.control_plane.streaming.outbox import SUBSCRIBER_BYTES, Channel, Subscriber
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import PENDING_SCHEDULING
from lcm.domain.lifecycle import TERMINATED, DesiredStatus
from lcm.domain.telemetry import LabChange, LabRecord, LabStats, Sample, merged
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Worker
from lcm.rest.lablets import LabletSessionView
from lcm.rest.schemas import WorkerView

BUFFER_BYTES: Final = 4 * 1024 * 1024

HEARTBEAT_SECONDS: Final = 30.0
BATCH_SECONDS: Final = 1.0
QUEUE_SECONDS: Final = 1.0
"""Changes of the queue within this time are one event."""
BATCH_EVENTS: Final = 50
BATCH_BYTES: Final = 32 * 1024
MAX_COALESCE_SECONDS: Final = 0.025
COALESCE_SECONDS_PER_SUBSCRIBER: Final = 0.0001
"""A write to a subscriber takes about 30 µs: the window leaves time for other work."""

SNAPSHOT: Final = StreamEvent.WORKER_SNAPSHOT
SESSIONS: Final = StreamEvent.SESSIONS_SNAPSHOT
SNAPSHOT_SESSIONS: Final = 50
"""Sessions in one event of a snapshot."""
METRICS: Final = StreamEvent.METRICS_UPDATED
LAB_STATS: Final = StreamEvent.LAB_STATS_UPDATED


class _OpenBatch:
    """A batch that is being collected."""

    __slots__ = ("parts", "size", "timer")

    def __init__(self) -> None:
        self.parts: list[tuple[str, bytes]] = []
        self.size = 0
        self.timer: asyncio.TimerHandle | None = None


class _OpenLoad:
    """The newest load of each worker or lab, until it is sent as one event each."""

    __slots__ = ("newest", "sending", "timer")

    def __init__(self) -> None:
        self.newest: dict[tuple[str, ...], Sample | bytes] = {}
        """By worker id, or worker id and lab id."""
        self.sending: deque[list[tuple[str, bytes]]] = deque()
        """Pieces that are sent one after the other: all at once could be more than a channel holds."""
        self.timer: asyncio.TimerHandle | None = None

    def take_piece(self) -> list[tuple[str, bytes]]:
        """Return the next piece; the last one before what has come meanwhile is begun."""
        if not self.sending:
            newest, self.newest = self.newest, {}
            size = BATCH_BYTES
            for (worker_id, *_), load in newest.items():
                part = load if isinstance(load, bytes) else msgspec.json.encode(load)
                if size + len(part) > BATCH_BYTES:
                    self.sending.append([])
                    size = 0
                self.sending[-1].append((worker_id, part))
                size += len(part)
        return self.sending.popleft()


SignedIn = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Within its block the callback is called soon after the credential has expired or was revoked."""


class EventHub:
    """Publishes to all subscribers; `SSEEventRelay` in the seeds."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        worker_cache: WorkerCache,
        *,
        session_cache: SessionCache | None = None,
        session_stats: SessionStats | None = None,
        newest_samples: Callable[[], Iterable[Sample]] = lambda: (),
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        buffer_size: int = 1_000,
        subscriber_bytes: int = SUBSCRIBER_BYTES,
    ) -> None:
        self._clock = clock
        self._worker_cache = worker_cache
        self._session_cache = session_cache
        self._session_stats = session_stats or SessionStats()
        self._newest_samples = newest_samples
        self._heartbeat_seconds = heartbeat_seconds
        self._subscriber_bytes = subscriber_bytes
        self._boot = ids.new_id()[:8]
        self._count = 0
        self._buffer: deque[Event | Load | Batch] = deque()
        self._buffer_size = buffer_size
        self._buffer_bytes = 0
        self._channels: dict[EventFilter, Channel] = {}
        self._open_batches = {METRICS: _OpenBatch(), LAB_STATS: _OpenBatch()}
        self._open_load = {METRICS: _OpenLoad(), LAB_STATS: _OpenLoad()}
        self._queue_timer: asyncio.TimerHandle | None = None
        self._flush_timer: asyncio.Handle | None = None
        self._last_flush = float("-inf")
        self._heartbeat: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._published_connected: dict[str, bool | None] = {}
        """The websocket status that was last published of each worker."""
        self.resets = 0
        self.flushes = 0
        self.events: Counter[str] = Counter()
        """Published events by type; batched ones are counted one by one."""
        self.batches: Counter[str] = Counter()

    @property
    def subscriber_count(self) -> int:
        return sum(len(channel.subscribers) for channel in self._channels.values())

    @property
    def channel_count(self) -> int:
        return len(self._channels)

    # Subscriptions: each becomes one or more events.

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        """Publish a committed change of a worker under the event name that describes it best."""
        known = self._worker_cache.get(after.id)
        if known is None or known.version <= after.version:
            self._publish_connection_once(after, before.connection.published if before else None)
        self._publish_worker(event_of(before, after), before, after)

    def on_worker_found(self, worker: Worker) -> None:
        """Publish a record newer than the cached one: its commit was never confirmed to its writer."""
        known = self._worker_cache.get(worker.id)
        if known is None and worker.status is TERMINATED:
            return  # its creation was never published
        if known is None or known.version < worker.version:
            self._worker_cache.learn(worker)
            self._publish_connection_once(worker, worker.connection.published)
            is_over = worker.status is TERMINATED
            kind = WorkerEvent.TERMINATED if is_over else WorkerEvent.STATUS_UPDATED
            self._publish_worker(kind, None, worker)

    def on_peer_commit(self, before: Worker | None, after: Worker) -> None:
        """Publish a commit of another control plane, unless a newer version was published before."""
        known = self._worker_cache.get(after.id)
        if known is None and after.status is TERMINATED:
            return  # its creation was never published
        if known is None or known.version < after.version:
            self._worker_cache.learn(after)
            self.on_worker_commit(before, after)

    def on_worker_gone(self, worker_id: str) -> None:
        """Publish the termination of a worker whose record was purged: only terminated workers are purged."""
        known = self._worker_cache.get(worker_id)
        if known is None:
            return
        self._worker_cache.forget(worker_id)
        self._published_connected.pop(worker_id, None)
        last = msgspec.json.decode(known.view, type=WorkerView)
        worker = replace(
            last,
            version=last.version + 1,
            status=TERMINATED,
            desired_status=DesiredStatus.TERMINATED,
            status_reason="its record was purged",
            possible_actions=(),
        )
        data = {"worker_id": worker_id, "worker": worker, "previous_status": last.status}
        self.publish(WorkerEvent.TERMINATED, data)

    def on_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        """Publish a committed change of a lablet session, to the people who may see it."""
        kind = session_event_of(before, after)
        if kind is not None:
            data: dict[str, Any] = {
                "session_id": after.id,
                "worker_id": after.worker_id,
                "session": LabletSessionView.of(after),
                "previous_status": before.status if before else None,
            }
            if kind is SessionEvent.ENDING_SOON:
                data["minutes"] = after.ending_soon_minutes
            self.publish(kind, data, owner_id=after.owner_id)
        if self._queue_timer is None and has_changed_queue(before, after):
            loop = asyncio.get_running_loop()
            self._queue_timer = loop.call_later(QUEUE_SECONDS, self._publish_queue)

    def on_peer_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        """Publish a commit of another control plane."""
        if self._session_cache is not None:
            self._session_cache.on_session_commit(before, after)
        self.on_session_commit(before, after)

    def on_sessions_unseen(self) -> None:
        """Read the sessions again for the next snapshot: changes may have happened without a commit here."""
        if self._session_cache is not None:
            self._session_cache.invalidate()

    def on_batch_commit(self, _: LabletBatch | None, after: LabletBatch) -> None:
        """Publish a committed change of a class, to operators and to its creator."""
        data = {
            "batch_id": after.id,
            "name": after.name,
            "size": len(after.owners),
            "is_complete": after.is_complete,
            "end_asked_at": after.end_asked_at,
        }
        self.publish(StreamEvent.BATCH_UPDATED, data, owner_id=after.creator_id)

    def on_definition_commit(self, before: StoredDefinition | None, after: StoredDefinition) -> None:
        """Publish a committed change of a lablet definition."""
        kind = definition_event_of(before, after)
        if kind is not None:
            self.publish(
                kind, {"definition_id": after.id, "definition": after.view(), "replaces": after.replaces}
            )

    def on_template(self, change: str, template: WorkerTemplate) -> None:
        self.publish(f"worker.template.{change}", {"template": template})

    def on_lab_change(
        self, changes: Sequence[LabChange], before: LabRecord | None, after: LabRecord | None
    ) -> None:
        for change in changes:
            self.publish(
                StreamEvent.LAB_STATE_CHANGE,
                {
                    "worker_id": change.worker_id,
                    "lab_id": change.lab_id,
                    "element_type": change.element_type,
                    "element_id": change.element_id,
                    "event": change.event,
                    "data": change.data,
                },
            )
        lab = after or before or changes[0]
        shown_before = _shown(before) if before else None
        shown_after = _shown(after) if after else None
        if shown_before != shown_after:
            self.publish(
                StreamEvent.LAB_STATUS_UPDATED,
                {
                    "worker_id": lab.worker_id,
                    "lab_id": lab.lab_id,
                    "status": after.state if after else "DELETED",
                    "lab": after,
                },
            )
        kind = lab_event_of(before, after)
        if kind is not None:
            self.publish(kind, {"worker_id": lab.worker_id, "lab_id": lab.lab_id, "lab": after or before})

    def on_sample(self, sample: Sample) -> None:
        self._collect(METRICS, sample.worker_id, msgspec.json.encode(sample))
        if (newest := self._load_to_send(METRICS)) is not None:
            known = newest.get((sample.worker_id,))
            newest[sample.worker_id,] = merged(known, sample) if isinstance(known, Sample) else sample

    def on_lab_stats(self, stats: LabStats) -> None:
        data = {
            "worker_id": stats.worker_id,
            "lab_id": stats.lab_id,
            "nodes": stats.nodes,
            "links": stats.links,
        }
        part = msgspec.json.encode(data)
        self._collect(LAB_STATS, stats.worker_id, part)
        if (newest := self._load_to_send(LAB_STATS)) is not None:
            newest[stats.worker_id, stats.lab_id] = part

    def _publish_queue(self) -> None:
        """Publish how many sessions of all owners wait for a worker, and for what."""
        self._queue_timer = None
        stats = self._session_stats
        waiting = stats.by_status()[PENDING_SCHEDULING]
        self.publish(StreamEvent.QUEUE_UPDATED, {"waiting": waiting, "reasons": stats.by_reason()})

    def _publish_worker(self, kind: WorkerEvent, before: Worker | None, after: Worker) -> None:
        known = self._worker_cache.get(after.id)
        is_encoded = known is not None and known.version == after.version
        view = known.view if known and is_encoded else msgspec.json.encode(WorkerView.of(after))
        data: dict[str, Any] = {"worker_id": after.id, "worker": msgspec.Raw(view)}
        if kind is WorkerEvent.ACTIVITY_UPDATED:
            data |= {
                "last_activity_at": after.activity.last_at,
                "recent_activity_events": after.activity.recent_events,
            }
        elif kind is WorkerEvent.LABS_UPDATED:
            data |= {
                "labs_count": after.cml.labs_count,
                "lab_discovery_requested_at": after.cml.lab_discovery_requested_at,
            }
        else:
            data["previous_status"] = before.status if before else None
        self.publish(kind, data)

    def _publish_connection_once(self, worker: Worker, published: bool | None) -> None:
        """Publish a change of the websocket status once. `published` is the status before, used until this
        process has published one: the record may hold a change whose commit was never confirmed."""
        published = self._published_connected.pop(worker.id, published)
        if worker.connection.published is not published:
            self._publish_connection(worker)
        if worker.status is not TERMINATED:
            self._published_connected[worker.id] = worker.connection.published

    def _publish_connection(self, worker: Worker) -> None:
        if worker.connection.published:
            self.publish(
                StreamEvent.WS_CONNECTED,
                {"worker_id": worker.id, "connected_at": worker.connection.connected_at},
            )
        else:
            self.publish(
                StreamEvent.WS_DISCONNECTED,
                {
                    "worker_id": worker.id,
                    "disconnected_at": worker.connection.disconnected_at,
                    "reason": worker.connection.reason,
                },
            )

    # Publishing.

    def publish(self, event_type: str, data: Mapping[str, Any], *, owner_id: str | None = None) -> None:
        """Send an event to every subscriber whose filter admits it, now."""
        self._count += 1
        self.events[event_type] += 1
        chunk = encode(event_type, data, f"{self._boot}-{self._count}")
        self._fan_out(Event(self._count, event_type, data.get("worker_id"), chunk, owner_id))

    def _collect(self, event_type: StreamEvent, worker_id: str, part: bytes) -> None:
        """Publish an event in a batch with others of its type, within a second."""
        batch = self._open_batches[event_type]
        batch.parts.append((worker_id, part))
        batch.size += len(part)
        if len(batch.parts) >= BATCH_EVENTS or batch.size >= BATCH_BYTES:
            self._publish_batch(event_type)
        elif batch.timer is None:
            loop = asyncio.get_running_loop()
            batch.timer = loop.call_later(BATCH_SECONDS, self._publish_batch, event_type)

    def _publish_batch(self, event_type: StreamEvent) -> None:
        batch = self._open_batches[event_type]
        self._open_batches[event_type] = _OpenBatch()
        if batch.timer is not None:
            batch.timer.cancel()
        parts = batch.parts
        self._count += 1
        self.events[event_type] += len(parts)
        self.batches[event_type] += 1
        event_id = f"{self._boot}-{self._count}"
        self._fan_out(Batch(self._count, event_id, event_type, parts, self._now()))

    def _load_to_send(self, event_type: StreamEvent) -> dict[tuple[str, ...], Sample | bytes] | None:
        """Return what is sent within a second as one event each; None if no subscriber wants it so."""
        load = self._open_load[event_type]
        if load.timer is None:
            if not any(_wants_load(channel.wanted, event_type) for channel in self._channels.values()):
                return None
            loop = asyncio.get_running_loop()
            load.timer = loop.call_later(BATCH_SECONDS, self._publish_load, event_type)
        return load.newest

    def _publish_load(self, event_type: StreamEvent) -> None:
        """Publish a piece. What comes meanwhile waits for a second after the last one: nothing is sent twice
        in a second."""
        load, loop = self._open_load[event_type], asyncio.get_running_loop()
        self._count += 1
        event_id = f"{self._boot}-{self._count}"
        self._fan_out(Load(self._count, event_id, event_type, load.take_piece()))
        wait = MAX_COALESCE_SECONDS if load.sending else BATCH_SECONDS
        is_more = load.sending or load.newest
        load.timer = loop.call_later(wait, self._publish_load, event_type) if is_more else None

    def _fan_out(self, event: Event | Load | Batch) -> None:
        self._buffer.append(event)
        self._buffer_bytes += event.size
        while len(self._buffer) > self._buffer_size or self._buffer_bytes > BUFFER_BYTES:
            self._buffer_bytes -= self._buffer.popleft().size
        for channel in self._channels.values():
            chunk = event.chunk_for(channel.wanted)
            if chunk is not None:
                channel.add(chunk)
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Flush at once after a quiet time, otherwise at the end of a short window."""
        if self._flush_timer is not None or not self._channels:
            return
        loop = asyncio.get_running_loop()
        window = min(MAX_COALESCE_SECONDS, COALESCE_SECONDS_PER_SUBSCRIBER * self.subscriber_count)
        wait = self._last_flush + window - loop.time()
        self._flush_timer = loop.call_later(wait, self._flush) if wait > 0 else loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._last_flush = asyncio.get_running_loop().time()
        self.flushes += 1
        for channel in self._channels.values():
            channel.flush()
        if any(channel.pending for channel in self._channels.values()):
            self._flush_soon()

    def _send_heartbeat(self) -> None:
        self._heartbeat = None
        if not self._channels:
            return
        beat = encode(StreamEvent.HEARTBEAT, {"server_time": self._clock.now()})
        for channel in self._channels.values():
            channel.add(beat if channel.wanted.include_system else KEEPALIVE)
        self._flush_soon()
        self._schedule_heartbeat()

    def _schedule_heartbeat(self) -> None:
        if self._heartbeat is None:
            loop = asyncio.get_running_loop()
            self._heartbeat = loop.call_later(self._heartbeat_seconds, self._send_heartbeat)

    # Subscribers.

    async def stream(
        self,
        last_event_id: str | None,
        wanted: EventFilter = EVERYTHING,
        while_signed_in: SignedIn = lambda _: nullcontext(),
    ) -> AsyncGenerator[bytes, None]:
        """Yield everything one browser gets, until it disconnects or its credential ends."""
        await self._worker_cache.load()
        await self._load_sessions()
        subscriber = Subscriber(self._subscriber_bytes)
        channel = self._join(wanted, subscriber)
        with while_signed_in(subscriber.expire), self._subscribed(channel, subscriber):
            for piece in self._opening(last_event_id, wanted):
                yield piece
            while not (self._is_closing or subscriber.is_expired):
                if subscriber.overflowed:
                    self.resets += 1
                    await self._load_sessions()
                    self._deliver_all(channel)
                    reason = subscriber.overflowed
                    subscriber.drop()
                    for piece in self._start_with_snapshots(StreamEvent.RESET, {"reason": reason}, wanted):
                        yield piece
                elif chunk := subscriber.take():
                    yield chunk
                else:
                    await subscriber.has_data.wait()
            if subscriber.is_expired:
                yield encode(StreamEvent.SESSION_EXPIRED, {})
            elif wanted.include_system:
                yield encode(StreamEvent.SHUTDOWN, {})

    async def _load_sessions(self) -> None:
        if self._session_cache is not None:
            await self._session_cache.load()

    def reset_all(self, reason: str) -> None:
        """Send `reset` and fresh snapshots to every subscriber: changes may have happened without an event.

        It takes a number that no event has, so that no browser resumes from an id before it.
        """
        self._count += 1
        self._buffer.clear()
        self._buffer_bytes = 0
        for channel in self._channels.values():
            channel.overflow(reason)

    def close(self) -> None:
        """End every stream; each is sent a last event."""
        self._is_closing = True
        batches = (batch.timer for batch in self._open_batches.values())
        load = (open_load.timer for open_load in self._open_load.values())
        for timer in (self._heartbeat, self._queue_timer, self._flush_timer, *batches, *load):
            if timer is not None:
                timer.cancel()
        for channel in self._channels.values():
            for subscriber in channel.subscribers:
                subscriber.has_data.set()

    def _join(self, wanted: EventFilter, subscriber: Subscriber) -> Channel:
        channel = self._channels.get(wanted)
        if channel is None:
            channel = self._channels[wanted] = Channel(wanted)
        self._deliver_all(channel)
        channel.subscribers[subscriber] = None
        self._schedule_heartbeat()
        return channel

    def _deliver_all(self, channel: Channel) -> None:
        """Flush the channel: a subscriber that gets snapshots now must not get older events after them."""
        while channel.pending:
            channel.flush()

    @contextmanager
    def _subscribed(self, channel: Channel, subscriber: Subscriber) -> Iterator[None]:
        try:
            yield
        finally:
            channel.subscribers.pop(subscriber, None)
            if not channel.subscribers:
                del self._channels[channel.wanted]

    def _opening(self, last_event_id: str | None, wanted: EventFilter) -> Iterator[bytes]:
        greeting = {"boot": self._boot, "server_time": self._clock.now()}
        if not last_event_id:
            yield from self._start_with_snapshots(StreamEvent.CONNECTED, greeting, wanted)
            return
        missed = self._missed_since(last_event_id)
        if missed is None:
            reason = {"reason": "the missed events are no longer buffered"}
            yield from self._start_with_snapshots(StreamEvent.RESET, reason, wanted)
            return
        yield encode(StreamEvent.CONNECTED, {**greeting, "workers": 0, "sessions": 0})
        for event in missed:
            chunk = event.chunk_for(wanted)
            if chunk is not None:
                yield chunk

    def _missed_since(self, last_event_id: str) -> list[Event | Load | Batch] | None:
        """Return the events after this id; None if the buffer cannot prove them complete."""
        boot, _, number = last_event_id.rpartition("-")
        if boot != self._boot or not number.isascii() or not number.isdigit():
            return None
        last = int(number)
        oldest_kept = self._buffer[0].number if self._buffer else self._count + 1
        if last > self._count or last < oldest_kept - 1:
            return None
        return [event for event in self._buffer if event.number > last]

    def _start_with_snapshots(
        self, event_type: str, data: Mapping[str, Any], wanted: EventFilter
    ) -> Iterator[bytes]:
        """Yield the present id, one snapshot per worker and the newest samples; newer events follow.

        Each piece is encoded when it is read, so a slow reader holds no copies.
        """
        head = f"id: {self._boot}-{self._count}\n"
        wants_workers = wanted.wants_type(SNAPSHOT)
        workers = [known for known in self._worker_cache if wants_workers and wanted.wants_worker(known.id)]
        sessions = self._sessions_of(wanted)
        counts = {"workers": len(workers), "sessions": len(sessions)}
        yield head.encode() + encode(event_type, {**data, **counts})
        yield from in_pieces(
            f'{head}event: {SNAPSHOT}\ndata: {{"worker":'.encode() + known.view + b"}\n\n"
            for known in workers
        )
        yield from in_pieces(
            f'{head}event: {SESSIONS}\ndata: {{"sessions":['.encode() + b",".join(some) + b"]}\n\n"
            for some in _chunks([known.view for known in sessions], SNAPSHOT_SESSIONS)
        )
        if wanted.is_batched and wanted.wants_type(f"{METRICS}.batch"):
            yield from self._newest_load_in_batches(wanted)
        elif _wants_load(wanted, METRICS):
            yield from in_pieces(self._newest_load(wanted))

    def _sessions_of(self, wanted: EventFilter) -> list[CachedSession]:
        """Return the sessions that this subscriber may see and wants."""
        if self._session_cache is None or not wanted.wants_type(SESSIONS):
            return []
        return [
            known
            for known in self._session_cache
            if wanted.wants_owner(known.owner_id) and wanted.wants_worker(known.worker_id)
        ]

    def _newest_load(self, wanted: EventFilter) -> Iterator[bytes]:
        """Yield the newest load of each worker without an id: it is a snapshot, not an event."""
        load = Load(self._count, "", METRICS, ())
        newest: dict[str, Sample] = {}
        for sample in sorted(self._newest_samples(), key=lambda sample: sample.collected_at):
            known = newest.get(sample.worker_id)
            newest[sample.worker_id] = merged(known, sample) if known else sample
        for sample in newest.values():
            if wanted.wants_worker(sample.worker_id):
                yield load.encode([msgspec.json.encode(sample)])

    def _newest_load_in_batches(self, wanted: EventFilter) -> Iterator[bytes]:
        """Yield the newest samples in batches without an id: they are a snapshot, not events."""
        parts: list[bytes] = []
        batch = Batch(self._count, f"{self._boot}-{self._count}", METRICS, (), self._now())
        for sample in self._newest_samples():
            if wanted.wants_worker(sample.worker_id):
                parts.append(msgspec.json.encode(sample))
            if len(parts) == BATCH_EVENTS:
                yield batch.encode(parts)
                parts = []
        if parts:
            yield batch.encode(parts)

    def _now(self) -> bytes:
        return msgspec.json.encode(self._clock.now())


def _wants_load(wanted: EventFilter, event_type: StreamEvent) -> bool:
    """Whether load is sent as one event for each worker or lab."""
    return not wanted.is_batched and wanted.wants_type(event_type)


def _shown(lab: LabRecord) -> tuple[object, ...]:
    """What people see of a lab besides its nodes."""
    return lab.state, lab.title, lab.kind, lab.request, lab.leak_kept, lab.missing_since


def _chunks(parts: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (parts[start : start + size] for start in range(0, len(parts), size))
