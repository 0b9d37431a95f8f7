"""Every kind of secret is masked from the moment a process has it, even if somebody logs it by mistake."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from lcm.cli.settings import PROCESSES, load
from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions
from lcm.control_plane.access.credentials import TOKEN
from lcm.control_plane.access.credentials import Credentials as IssuedCredentials
from lcm.control_plane.access.roles import TOKEN_PREFIX, Role
from lcm.control_plane.access.sealing import KeyFile, SecretBox
from lcm.control_plane.access.secrets import KIND, SealedSecret, SecretStore
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document
from lcm.core.ids import RandomIds
from lcm.core.redaction import MASK
from lcm.domain.license import License, LicenseOperation
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import CmlLogin, Worker
from lcm.rest.schemas import CmlCredentials, LicenseToken
from lcm.worker_controller.running.license import LicenseRegistrar
from lcm.worker_controller.settings import WorkerControllerSettings
from support.core import a_worker
from support.issuer import Issuer
from support.live import W1, CollectingControlPlane, a_target
from support.logged import Log, real_logging
from support.memory_licensing import MemoryLicensing
from support.memory_live import MemoryLiveServer, MemoryLiveServers
from support.virtual_time import BEGINNING, VirtualClock

ids = RandomIds(Random("secrets that no other test uses"))


@pytest.fixture(params=["human", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with real_logging(request.param) as log:
        yield log


@pytest.fixture
def secret() -> str:
    """One that nobody has protected yet."""
    return f"pw-{ids.new_id()}/+&"


@pytest.fixture
def secret_box() -> SecretBox:
    return SecretBox.of(bytes(32))


def test_what_no_process_knows_as_a_secret_is_written(log: Log, secret: str) -> None:
    """So that a masked line says something. (Other tests of the same process have protected other words.)"""
    assert "plain" in log.shows(secret)
    assert log.lines_with(secret).count(secret) == 6, (
        "in words, two fields, two tracebacks and a library's words"
    )


# The control plane.


async def test_a_secret_put_into_the_vault_is_masked(log: Log, secret: str, secret_box: SecretBox) -> None:
    await SecretStore(MemoryStore(), secret_box).put("license-token", "w-1", secret)
    assert log.shows(secret) == []
    assert MASK in log.lines_with(secret)


async def test_a_secret_read_from_the_vault_is_masked(log: Log, secret: str, secret_box: SecretBox) -> None:
    """An earlier process has put it there."""
    store, place = MemoryStore(), "license-token/w-1"
    sealed = SealedSecret(sealed=secret_box.seal(secret, belongs_to=place))
    await store.insert(Document(KIND, place, 1, msgspec.json.encode(sealed)))
    assert await SecretStore(store, secret_box).get("license-token", "w-1") == secret
    assert log.shows(secret) == []


def test_a_key_that_seals_is_masked_whether_it_was_made_read_or_replaced(log: Log, tmp_path: Path) -> None:
    key_file = KeyFile(tmp_path / "secret-keys.json")
    key_file.save(key_file.load_or_create().with_new_key())
    for key in json.loads((tmp_path / "secret-keys.json").read_text())["keys"]:
        assert log.shows(key) == []


def test_a_key_that_seals_is_masked_if_it_comes_from_a_file_of_an_earlier_process(
    log: Log, tmp_path: Path
) -> None:
    key = base64.b64encode(ids.new_id()[:32].encode()).decode()
    (tmp_path / "secret-keys.json").write_text(json.dumps({"keys": [key]}))
    KeyFile(tmp_path / "secret-keys.json").load_or_create()
    assert log.shows(key) == []


def test_each_of_several_given_keys_is_masked(log: Log) -> None:
    keys = [base64.b64encode(bytes(range(first, first + 32))).decode() for first in (0, 100)]
    SecretBox.parse(",".join(keys))
    assert [log.shows(key) for key in keys] == [[], []]


async def test_a_token_made_for_a_person_is_masked_in_every_process(log: Log) -> None:
    tokens = IssuedCredentials(MemoryStore(), VirtualClock(), TOKEN, secret_prefix=TOKEN_PREFIX)
    token, _ = await tokens.issue(name="ci", role=Role.OPERATOR, by="ada", expires_at=None)
    assert log.shows(token) == []


def test_a_bearer_token_of_the_identity_provider_is_masked_in_every_process(log: Log) -> None:
    assert log.shows(Issuer().token(BEGINNING)) == []


# The worker controller.


async def test_a_workers_own_cml_password_is_masked(log: Log, secret: str) -> None:
    clock = VirtualClock()
    cml, plane = MemoryLiveServer(clock), CollectingControlPlane(clock)
    cml.password = secret
    plane.logins[W1] = CmlCredentials(username="admin", password=secret, secret_ref="ref-1")
    sessions = CmlSessions(MemoryLiveServers({"10.0.0.1": cml}), Credentials("admin", "fleet"), plane, clock)
    own = CmlLogin(username="admin", secret_ref="ref-1")
    await sessions.of(a_target(login=own).server).token()
    assert log.shows(secret) == []


class LicensedPlane:
    """Hands out one token, and takes every report."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_license_token(self, worker: Worker) -> LicenseToken:
        return LicenseToken(token=self._token)

    async def report_license(self, worker: Worker, *_: Any) -> Worker:
        return worker


async def test_a_license_token_is_masked(log: Log, secret: str) -> None:
    plane: Any = LicensedPlane(secret)
    licensing = MemoryLicensing()
    pending = License(pending_operation=LicenseOperation.REGISTER, operation_in_progress=True)
    keeper = LicenseRegistrar(
        plane,
        licensing,
        lambda _: a_target().server,
        lambda: None,
        VirtualClock(),
        Counter(),
        lambda worker, kind: None,
        deregistration_seconds=120.0,
    )
    await keeper.advance(a_worker(status=RUNNING, license=pending))
    assert licensing.calls == ["register 10.0.0.1"]
    assert log.shows(secret) == []


# The settings of every process.

SECRET_SETTINGS = {
    "control-plane": (
        "CONTROL_PLANE_API_KEY",
        "WORKER_CONTROLLER_API_KEY",
        "RESOURCE_SCHEDULER_API_KEY",
        "LABLET_CONTROLLER_API_KEY",
        "CONTROL_PLANE_PEER_API_KEY",
        "OIDC_CLIENT_SECRET",
        "LCM_SECRET_KEY",
        "STORE_URL",
        "ETCD_PASSWORD",
    ),
    "worker-controller": (
        "CONTROL_PLANE_API_KEY",
        "CML_WORKER_API_PASSWORD",
        "CML_DEFAULT_PASSWORD",
        "ETCD_PASSWORD",
    ),
    "resource-scheduler": ("CONTROL_PLANE_API_KEY", "ETCD_PASSWORD"),
    "lablet-controller": (
        "CONTROL_PLANE_API_KEY",
        "CML_WORKER_API_PASSWORD",
        "CML_DEFAULT_PASSWORD",
        "ETCD_PASSWORD",
    ),
}


@pytest.mark.parametrize(
    ("process", "variable"), [(process, name) for process, names in SECRET_SETTINGS.items() for name in names]
)
def test_a_secret_among_the_settings_is_masked(log: Log, secret: str, process: str, variable: str) -> None:
    given = f"mongodb://lcm:x@db/{secret}" if variable == "STORE_URL" else secret
    load(process, PROCESSES[process], None, {variable: given})
    assert log.shows(given) == []


def test_each_key_of_a_rotation_is_masked_by_itself(log: Log) -> None:
    newer, older = (f"{name} key {ids.new_id()}" for name in ("newer", "older"))
    load("worker-controller", WorkerControllerSettings, None, {"CONTROL_PLANE_API_KEY": f"{newer}, {older}"})
    assert [log.shows(newer), log.shows(older)] == [[], []]


def test_the_password_in_the_address_of_the_store_is_masked_by_itself(log: Log) -> None:
    password = f"p@ss {ids.new_id()}"
    load("control-plane", ControlPlaneSettings, None, {"STORE_URL": f"mongodb://lcm:{quote(password)}@db"})
    assert log.shows(password) == []


def test_an_address_without_a_password_hides_nothing_else(log: Log) -> None:
    load("control-plane", ControlPlaneSettings, None, {"STORE_URL": "mongodb://db-1:27017/lcm-records"})
    assert "plain" in log.shows("27017/lcm-records")
