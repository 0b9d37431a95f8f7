"""The worker records: read, added and changed only through here."""

from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec.structs import replace

from lcm.control_plane.access.roles import Principal
from lcm.control_plane.records.collection import Collection
from lcm.control_plane.records.signing import signed
from lcm.control_plane.records.worker_forms import current_form
from lcm.control_plane.store.port import Document
from lcm.domain.errors import Conflict, InstanceTaken, NameTaken
from lcm.domain.lifecycle import TERMINATED
from lcm.domain.worker import Worker

KIND = "worker"
NAME_KEY = "name:"
"""Begins the unique key that a worker holds until it is terminated."""

PIECE = 500
"""How many records are read at a time where there may be very many."""

Listener = Callable[[Worker | None, Worker], None]
"""Called on every commit, in order, with the record before (None for a new one) and after."""


class Workers(Collection[Worker]):
    """All workers, live and terminated."""

    kind = KIND
    noun = "worker"
    listed_at = "/api/workers"
    parts = ("launch", "instance", "cml", "connection", "activity", "pause")

    def read(self, document: Document) -> tuple[bytes, Worker]:
        return _read(document)

    async def list_live(self) -> list[Worker]:
        """Return every readable worker that is not terminated; terminated ones cost nothing."""
        return self._remember_list(await self._store.list_holding(self.kind, NAME_KEY))

    async def list_all(self) -> list[Worker]:
        """Return terminated workers too, however many there are. They are not remembered."""
        documents = await self._store.list_all(self.kind)
        return [worker for _, (_, worker) in self._readable(documents)]

    async def each(self) -> AsyncIterator[Worker]:
        """Yield terminated workers too, a piece of them in memory at a time."""
        before: str | None = None
        while documents := await self._store.list_newest(self.kind, before, PIECE):
            for _, (_, worker) in self._readable(documents):
                yield worker
            before = documents[-1].id

    def unique_keys(self, record: Worker) -> tuple[str, ...]:
        """A name is unique among workers that are not terminated; an instance is never another worker's.

        An import that takes effect after the worker of that instance was released must not bring it back.
        """
        name = () if record.status is TERMINATED else (f"{NAME_KEY}{record.name}",)
        return name if record.instance.id is None else (*name, f"instance:{record.instance.id}")

    def taken(self, key: str, record: Worker) -> NameTaken | InstanceTaken:
        if key.startswith("instance:"):
            return InstanceTaken(f"instance {record.instance.id} belongs to another worker")
        return NameTaken(
            f"a worker named {record.name!r} exists; choose another name or delete that one first"
        )

    def sign(self, before: Worker | None, after: Worker, person: Principal) -> Worker:
        known = before.state_history if before is not None else ()
        return replace(after, state_history=signed(known, after.state_history, person))

    def accept(self, before: Worker, after: Worker) -> Worker:
        """Nothing changes a terminated worker; a repeated request finds it as it is."""
        if before.status is not TERMINATED:
            return after
        if replace(after, recent_requests=before.recent_requests) == before:
            return before
        raise Conflict(f"worker {before.id} is terminated; its record is only kept for the audit")


_decoder = msgspec.json.Decoder(Worker)


def decode_worker(document: Document) -> Worker:
    """Return the record of a document of this kind, in whichever form it was written."""
    return _read(document)[1]


def _read(document: Document) -> tuple[bytes, Worker]:
    """Return the record and its body in the present form."""
    try:
        return document.body, _decoder.decode(document.body)
    except msgspec.ValidationError:
        body = current_form(document.body)
        return body, _decoder.decode(body)
