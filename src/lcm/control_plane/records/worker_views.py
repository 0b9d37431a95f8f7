"""The public views of workers, encoded once for as long as their records stay as they are."""

from typing import Final

import msgspec

from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView

MAX_VIEWS: Final = 10_000


class WorkerViews:
    """A view says nothing but what its record says: no load, no time.

    It is known by the record itself, of which a list returns the same one until the stored document changes.
    Id and version would not suffice: after a purge another worker may have both.
    """

    def __init__(self, max_views: int = MAX_VIEWS) -> None:
        self._max_views = max_views
        self._encoded: dict[str, tuple[Worker, msgspec.Raw]] = {}
        """By the worker's id, those encoded first at the beginning."""

    def of(self, worker: Worker) -> msgspec.Raw:
        """Return the encoded view of this record."""
        known = self._encoded.get(worker.id)
        if known is not None and known[0] is worker:
            return known[1]
        view = msgspec.Raw(msgspec.json.encode(WorkerView.of(worker)))
        self._encoded.pop(worker.id, None)
        self._encoded[worker.id] = worker, view
        if len(self._encoded) > self._max_views:
            del self._encoded[next(iter(self._encoded))]
        return view
