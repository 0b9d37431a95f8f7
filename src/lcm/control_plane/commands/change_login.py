"""A worker's own CML login: operators set and remove it, the worker controller reads it.

As with license tokens, the password is stored as a secret under a name of its own before a record names it,
and removed once no record names it any more.
"""

from typing import Final

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.errors import NotFound, RequestError
from lcm.domain.requests import change_login
from lcm.domain.worker import CmlLogin, Worker
from lcm.rest.schemas import CmlCredentials

PURPOSE: Final = "cml-login"


async def set_login(
    records: Records,
    worker_id: str,
    username: str,
    password: str,
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Have LCM use this login on the worker's CML."""
    await records.workers.get(worker_id)
    login = CmlLogin(username=username, secret_ref=f"{worker_id}-{records.ids.new_id()[:8]}")
    await records.secrets.put(PURPOSE, login.secret_ref, password)
    try:
        worker = await _change(records, worker_id, login, by, preconditions)
    except RequestError:  # nothing else proves that the record does not name it
        await records.secrets.remove(PURPOSE, login.secret_ref)
        raise
    if worker.cml.login != login:  # the request was carried out before
        await records.secrets.remove(PURPOSE, login.secret_ref)
    return worker


async def remove_login(
    records: Records, worker_id: str, *, by: str, preconditions: Preconditions = UNCONDITIONAL
) -> Worker:
    """Have LCM use the fleet's login on the worker's CML again."""
    return await _change(records, worker_id, None, by, preconditions)


async def login_of(records: Records, worker_id: str) -> CmlCredentials:
    """Return the password with the login, for the worker controller alone."""
    worker = await records.workers.get(worker_id)
    login = worker.cml.login if worker.is_trusted else None
    password = await records.secrets.get(PURPOSE, login.secret_ref) if login else None
    if login is None or password is None:
        raise NotFound(f"worker {worker_id} has no CML login of its own")
    return CmlCredentials(username=login.username, password=password, secret_ref=login.secret_ref)


async def _change(
    records: Records, worker_id: str, login: CmlLogin | None, by: str, preconditions: Preconditions
) -> Worker:
    """Change the record, then remove the password that it no longer names."""
    now = records.clock.now()
    before: CmlLogin | None = None

    def decide(worker: Worker) -> Worker:
        nonlocal before
        before = worker.cml.login
        return change_login(worker, login, by=by, now=now)

    worker = await records.workers.change(worker_id, preconditions.guard(decide))
    if before is not None and before != worker.cml.login:
        await records.secrets.remove(PURPOSE, before.secret_ref)
    return worker
