"""What one control plane tells the others, the moment it happens there.

Several control planes share the records, but each keeps things in memory that its streams and its quick
checks need: the newest view of each worker, the labs, the load, the epochs. Whatever is committed or reported
at one plane goes to all who follow it, as one line each. Nobody waits for a follower: one that does not read
is told that it lost something, and looks at everything again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import msgspec

from lcm.control_plane.records.idle_checks import CheckTimes
from lcm.control_plane.records.templates import Change as TemplateChange
from lcm.control_plane.store.port import Fence
from lcm.core.ids import Ids
from lcm.core.timeouts import timeout
from lcm.domain.telemetry import LabChange, LabRecord, LabStats, Sample
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Worker

BEAT_SECONDS: Final = 5.0
FOLLOWER_BYTES: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Who speaks; the first line."""

    boot: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """Nothing happened, and the connection stands."""


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Not everything that happened was told."""


class Committed(msgspec.Struct, frozen=True, tag="worker"):
    before: Worker | None
    after: Worker


class LabChanged(msgspec.Struct, frozen=True, tag="lab"):
    changes: Sequence[LabChange]
    before: LabRecord | None
    after: LabRecord | None
    version: int
    """Of the record after; 0 if there is none."""


class Sampled(msgspec.Struct, frozen=True, tag="sample"):
    sample: Sample


class LabStatsCame(msgspec.Struct, frozen=True, tag="lab-stats"):
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


FeedMessage = (
    Hello
    | Beat
    | Lost
    | Committed
    | LabChanged
    | Sampled
    | LabStatsCame
    | TemplateChanged
    | EpochGranted
    | IdleChecked
)

read_message: Final = msgspec.json.Decoder(FeedMessage).decode
"""One line of a feed; raises msgspec.MsgspecError if a newer version wrote it in words unknown here."""


class _Follower:
    """What one other control plane has not been sent yet."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.something_waits = asyncio.Event()

    def offer(self, line: bytes) -> None:
        if self._bytes + len(line) > FOLLOWER_BYTES:
            self._waiting.clear()
            self._bytes = 0
            line = _line(Lost())
        self._waiting.append(line)
        self._bytes += len(line)
        self.something_waits.set()

    def take(self) -> bytes:
        """About a piece of what waits; empty if nothing does."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < PIECE_BYTES:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        self._bytes -= size
        if not self._waiting:
            self.something_waits.clear()
        return b"".join(taken)


class Feed:
    """Costs nothing while nobody follows."""

    def __init__(self, ids: Ids, newest_samples: Callable[[], Iterable[Sample]] = lambda: ()) -> None:
        self._ids = ids
        self._newest_samples = newest_samples
        self._boot: str | None = None
        self._followers: dict[_Follower, None] = {}
        self._is_hushed = False
        self._is_closing = False

    @property
    def boot(self) -> str:
        """The name of this process among its peers; made when it is first needed."""
        if self._boot is None:
            self._boot = self._ids.new_id()
        return self._boot

    @property
    def subscriber_count(self) -> int:
        return len(self._followers)

    def publish(self, message: FeedMessage) -> None:
        if self._followers and not self._is_hushed:
            line = _line(message)
            for follower in self._followers:
                follower.offer(line)

    @contextmanager
    def suppress_echo(self) -> Iterator[None]:
        """While news of another plane is taken in: it tells the others itself."""
        self._is_hushed = True
        try:
            yield
        finally:
            self._is_hushed = False

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Hello, the present load, and then everything that happens here."""
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
                        await follower.something_waits.wait()
                except TimeoutError:
                    yield _line(Beat())
        finally:
            del self._followers[follower]

    def close(self) -> None:
        """End every feed, so that the process can."""
        self._is_closing = True
        for follower in self._followers:
            follower.something_waits.set()

    # What happened, in the words of those who tell.

    def on_worker_commit(self, before: Worker | None, after: Worker) -> None:
        self.publish(Committed(before, after))

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
        if self._followers:  # load comes all the time: a plane without others pays nothing for them
            self.publish(Sampled(sample))

    def on_lab_stats(self, stats: LabStats) -> None:
        if self._followers:
            self.publish(LabStatsCame(stats))

    def on_template(self, change: TemplateChange, template: WorkerTemplate) -> None:
        self.publish(TemplateChanged(change, template))

    def on_epoch(self, fence: Fence) -> None:
        self.publish(EpochGranted(fence.kind, fence.id, fence.version))

    def on_idle_check(self, worker_id: str, times: CheckTimes, is_unconfirmed: bool) -> None:
        self.publish(IdleChecked(worker_id, times.last, times.next, is_unconfirmed))


def _line(message: FeedMessage) -> bytes:
    return msgspec.json.encode(message) + b"\n"
