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
        """Return its name; of one that was purged or is new since then the beginning of its id."""
        return self._workers.get(worker_id, short(worker_id)) if worker_id is not None else ""

    def of_owner(self, owner_id: str) -> str:
        """Return the name of whoever asks; of anybody else the id is all that is known."""
        return self._caller.actor if owner_id == self._caller.id else owner_id

    @cached_property
    def _workers(self) -> dict[str, str]:
        return {worker.id: worker.name for worker in self._lcm.workers.list_all(include_terminated=True)}

    @cached_property
    def _caller(self) -> "SessionView":
        return self._lcm.who()
