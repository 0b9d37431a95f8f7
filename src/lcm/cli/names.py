"""Names of what records refer to by its id; asked for when the first one is shown."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcm.client import Lcm
    from lcm.rest.schemas import SessionView

SHORT_ID = 8
"""As much of an id as is shown of what has no name."""


def short(identifier: str | None) -> str:
    return (identifier or "")[:SHORT_ID]


class Names:
    """Those of one LCM."""

    def __init__(self, lcm: "Lcm") -> None:
        self._lcm = lcm

    def of_worker(self, worker_id: str | None) -> str:
        """Return its name; of one that was purged the beginning of its id."""
        if worker_id is None:
            return ""
        if worker_id not in self._workers:
            self._workers[worker_id] = self._name_of(worker_id)
        return self._workers[worker_id]

    def of_owner(self, owner_id: str) -> str:
        """Return the name of the person who asks; of another one the id is all that is known."""
        return self._caller.actor if owner_id == self._caller.id else owner_id

    @cached_property
    def _workers(self) -> dict[str, str]:
        """Those that are not terminated, and others once they are shown: there may be very many."""
        return {worker.id: worker.name for worker in self._lcm.workers.list_all()}

    def _name_of(self, worker_id: str) -> str:
        from lcm.client import NotFound

        try:
            return self._lcm.workers.get(worker_id).name
        except NotFound:
            return short(worker_id)

    @cached_property
    def _caller(self) -> "SessionView":
        return self._lcm.who()
