"""A worker's own CML login: its password is kept as a secret, nowhere else, and only as long as needed."""

import msgspec
import pytest

from lcm.control_plane.access.secrets import KIND
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.change_login import PURPOSE, login_of, remove_login, set_login
from lcm.control_plane.commands.clean_up import forget_worker
from lcm.control_plane.records.preconditions import Preconditions, keyed_request
from lcm.domain.errors import ActionRefused, NotFound
from lcm.domain.lifecycle import RUNNING, TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView
from support.core import a_worker

SECRET = "canary-password-of-one-worker"


@pytest.fixture
async def worker(plane: ControlPlane) -> Worker:
    return await plane.records.workers.add(a_worker(status=RUNNING))


async def secrets(plane: ControlPlane) -> int:
    return len([kept for kept in await plane.records.store.list_all(KIND) if kept.id.startswith(PURPOSE)])


async def test_only_the_controller_reads_the_login(plane: ControlPlane, worker: Worker) -> None:
    changed = await set_login(plane.records, worker.id, "lcm", SECRET, by="ada")
    login = await login_of(plane.records, worker.id)
    assert (login.username, login.password) == ("lcm", SECRET)
    assert SECRET not in f"{login!r} {changed!r}"
    assert WorkerView.of(changed).cml_username == "lcm"
    assert b"secret" not in msgspec.json.encode(WorkerView.of(changed))


async def test_another_login_wakes_the_controller_and_is_a_line_of_the_timeline(
    plane: ControlPlane, worker: Worker
) -> None:
    changed = await set_login(plane.records, worker.id, "lcm", SECRET, by="ada")
    assert changed.generation == worker.generation + 1
    assert (changed.state_history[-1].by, changed.state_history[-1].reason) == (
        "ada",
        "CML login is its own, lcm",
    )


async def test_a_new_password_removes_the_old_one(plane: ControlPlane, worker: Worker) -> None:
    first = await set_login(plane.records, worker.id, "lcm", "old", by="ada")
    second = await set_login(plane.records, worker.id, "lcm", SECRET, by="ada")
    assert first.cml.login != second.cml.login
    assert (await login_of(plane.records, worker.id)).password == SECRET
    assert await secrets(plane) == 1


async def test_without_a_login_of_its_own_the_fleets_is_used(plane: ControlPlane, worker: Worker) -> None:
    await set_login(plane.records, worker.id, "lcm", SECRET, by="ada")
    changed = await remove_login(plane.records, worker.id, by="ada")
    assert changed.cml.login is None
    assert await secrets(plane) == 0
    with pytest.raises(NotFound, match="no CML login of its own"):
        await login_of(plane.records, worker.id)
    assert await remove_login(plane.records, worker.id, by="ada") == changed


async def test_a_repeated_request_leaves_one_password(plane: ControlPlane, worker: Worker) -> None:
    again = Preconditions(keyed_request("ada", "key", b"PUT"))
    first = await set_login(plane.records, worker.id, "lcm", SECRET, by="ada", preconditions=again)
    second = await set_login(plane.records, worker.id, "lcm", SECRET, by="ada", preconditions=again)
    assert second == first
    assert (await login_of(plane.records, worker.id)).password == SECRET
    assert await secrets(plane) == 1


async def test_a_terminated_worker_takes_no_login_and_keeps_no_password(
    plane: ControlPlane,
) -> None:
    gone = await plane.records.workers.add(a_worker(status=TERMINATED))
    with pytest.raises(ActionRefused):
        await set_login(plane.records, gone.id, "lcm", SECRET, by="ada")
    with pytest.raises(NotFound):
        await set_login(plane.records, "nobody", "lcm", SECRET, by="ada")
    assert await secrets(plane) == 0


async def test_the_password_is_removed_with_the_record(plane: ControlPlane, worker: Worker) -> None:
    await forget_worker(plane.records, await set_login(plane.records, worker.id, "lcm", SECRET, by="ada"))
    assert await secrets(plane) == 0


def test_the_digest_of_a_request_is_nothing_without_its_key() -> None:
    one, other = (keyed_request("ada", key, b'{"password":"1234"}') for key in ("k1", "k2"))
    assert one.content != other.content
    assert keyed_request("ada", "k1", b'{"password":"1234"}') == one
