"""The replication feed: what one control plane commits and receives, for the others.

Several control planes share the records, but each caches what its streams and its fast checks need: the
newest view of each worker, the labs, the load, the epochs. Everything that is committed or reported at one
control plane is published to all its followers, one line each. The feed never waits for a follower: one that
reads too slowly is sent `lost`, and resyncs.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import msgspec

from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.records.templates import Change as TemplateChange
from lcm.control_plane.store.port import Fence
from lcm.core.ids import Ids
from lcm.core.timeouts import timeout
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.session import LabletSession
from lcm.domain.telemetry import LabChange, LabRecord, LabStats, Sample
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Worker
from lcm.rest.system import ProcessReport

BEAT_SECONDS: Final = 5.0
FOLLOWER_BYTES: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first line: the identity of the process."""

    boot: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A heartbeat while nothing is published."""


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Messages were dropped; the follower has to resync."""


class Committed(msgspec.Struct, frozen=True, tag="worker"):
    before: Worker | None
    after: Worker


class SessionCommitted(msgspec.Struct, frozen=True, tag="lablet-session"):
    before: LabletSession | None
    after: LabletSession


class DefinitionCommitted(msgspec.Struct, frozen=True, tag="lablet-definition"):
    before: StoredDefinition | None
    after: StoredDefinition


class BatchCommitted(msgspec.Struct, frozen=True, tag="lablet-batch"):
    before: LabletBatch | None
    after: LabletBatch


class LabChanged(msgspec.Struct, frozen=True, tag="lab"):
    changes: Sequence[LabChange]
    before: LabRecord | None
    after: LabRecord | None
    version: int
    """Of the record after; 0 if there is none."""


class Sampled(msgspec.Struct, frozen=True, tag="sample"):
    sample: Sample


class LabStatsReported(msgspec.Struct, frozen=True, tag="lab-stats"):
    stats: LabStats


class TemplateChanged(msgspec.Struct, frozen=True, tag="template"):
    change: TemplateChange
    template: WorkerTemplate


class EpochGranted(msgspec.Struct, frozen=True, tag="epoch"):
    kind: str
    id: str
    version: int


class IdleChecked(msgspec.Struct, frozen=True, tag="idle-check"):
    worker_id: str
    last: datetime
    next: datetime
    is_unconfirmed: bool = False


class SchedulerHeard(msgspec.Struct, frozen=True, tag="scheduler"):
    """A scheduler called this control plane."""


class ProcessReported(msgspec.Struct, frozen=True, tag="process"):
    report: ProcessReport


FeedMessage = (
    Hello
    | Beat
    | Lost
    | Committed
    | SessionCommitted
    | DefinitionCommitted
    | BatchCommitted
    | LabChanged
    | Sampled
    | LabStatsReported
    | TemplateChanged
    | EpochGranted
    | IdleChecked
    | SchedulerHeard
    | ProcessReported
)

read_message: Final = msgspec.json.Decoder(FeedMessage).decode
"""Decode one line of a feed; raises msgspec.MsgspecError for a message that only a newer version knows."""


class _Follower:
    """The outbox of one other control plane."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.has_data = asyncio.Event()

    def offer(self, line: bytes) -> None:
        if self._bytes + len(line) > FOLLOWER_BYTES:
            self._waiting.clear()
            self._bytes = 0
            line = _line(Lost())
        self._waiting.append(line)
        self._bytes += len(line)
        self.has_data.set()

    def take(self) -> bytes:
        """Return about one piece of the outbox; empty if the outbox is."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < PIECE_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        self._bytes -= size
        if not self._waiting:
            self.has_data.clear()
        return b"".join(taken)


class Feed:
    """Encodes nothing while there are no followers."""

    def __init__(self, ids: Ids, newest_samples: Callable[[], Iterable[Sample]] = lambda: ()) -> None:
        self._ids = ids
        self._newest_samples = newest_samples
        self._boot: str | None = None
        self._followers: dict[_Follower, None] = {}
        self._is_suppressed = False
        self._is_closing = False

    @property
    def boot(self) -> str:
        """The identity of this process among its peers; created when first needed."""
        if self._boot is None:
            self._boot = self._ids.new_id()
        return self._boot

    @property
    def subscriber_count(self) -> int:
        return len(self._followers)

    def publish(self, message: FeedMessage) -> None:
        if self._followers and not self._is_suppressed:
            line = _line(message)
            for follower in self._followers:
                follower.offer(line)

    @contextmanager
    def suppress_echo(self) -> Iterator[None]:
        """Publish nothing while a peer's message is applied: the peer publishes it to the others itself."""
        self._is_suppressed = True
        try:
            yield
        finally:
            self._is_suppressed = False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield hello, the newest samples, and then everything that is committed and reported here."""
        follower = _Follower()
        self._followers[follower] = None
        try:
            yield _line(Hello(self.boot))
            for sample in self._newest_samples():
                follower.offer(_line(Sampled(sample)))
            while not self._is_closing:
                if chunk := follower.take():
                    yield chunk
                    continue
                try:
                    async with timeout(BEAT_SECONDS):
                        await follower.has_data.wait()
                except TimeoutError:
                    yield _line(Beat())
        finally:
            del self._followers[follower]

    def close(self) -> None:
        """End every feed, so that the process can stop."""
        self._is_closing = True
        for follower in self._followers:
            follower.has_data.set()

    # Subscriptions: each becomes one message.

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        self.publish(Committed(before, after))

    def on_session_commit(self, before: LabletSession | None, after: LabletSession) -> None:
        self.publish(SessionCommitted(before, after))

    def on_definition_commit(self, before: StoredDefinition | None, after: StoredDefinition) -> None:
        self.publish(DefinitionCommitted(before, after))

    def on_batch_commit(self, before: LabletBatch | None, after: LabletBatch) -> None:
        self.publish(BatchCommitted(before, after))

    def on_lab_change(
        self,
        changes: Sequence[LabChange],
        before: LabRecord | None,
        after: LabRecord | None,
        *,
        version_of: Callable[[str, str], int],
    ) -> None:
        lab = after or before or changes[0]
        self.publish(LabChanged(changes, before, after, version_of(lab.worker_id, lab.lab_id)))

    def on_sample(self, sample: Sample) -> None:
        if self._followers:  # samples are frequent: without followers they cost nothing
            self.publish(Sampled(sample))

    def on_lab_stats(self, stats: LabStats) -> None:
        if self._followers:
            self.publish(LabStatsReported(stats))

    def on_template(self, change: TemplateChange, template: WorkerTemplate) -> None:
        self.publish(TemplateChanged(change, template))

    def on_epoch(self, fence: Fence) -> None:
        self.publish(EpochGranted(fence.kind, fence.id, fence.version))

    def on_idle_check(self, worker_id: str, times: CheckTimes, is_unconfirmed: bool) -> None:
        self.publish(IdleChecked(worker_id, times.last, times.next, is_unconfirmed))

    def on_scheduler(self) -> None:
        self.publish(SchedulerHeard())

    def on_process(self, report: ProcessReport) -> None:
        self.publish(ProcessReported(report))


def _line(message: FeedMessage) -> bytes:
    return msgspec.json.encode(message) + b"\n"
