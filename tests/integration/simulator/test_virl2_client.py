"""Cisco's own client, unchanged, against simulated servers of the releases it supports.

One client version can be installed at a time; 2.9.1 runs from a directory of its own, filled by `make test`.
"""

import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from virl2_client import ClientLibrary  # type: ignore[import-untyped]
from virl2_client.exceptions import (  # type: ignore[import-untyped]
    APIError,
    InitializationError,
    LabNotFound,
)

from lcm.simulator.main import SimulatedWorker
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, running_simulator

pytestmark = pytest.mark.filterwarnings(
    # Of httpx inside the client, which is told not to verify the certificate.
    "ignore::DeprecationWarning"
)

VERSIONS = ("2.9.1", "2.10.0")

TOPOLOGY = """
lab: {title: from a file, description: two hosts, notes: '', version: 0.3.0}
nodes:
- {id: n0, label: a, node_definition: alpine, x: 0, y: 0, interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]}
- {id: n1, label: b, node_definition: server, x: 9, y: 0, interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]}
links: [{id: l0, n1: n0, i1: i0, n2: n1, i2: i0}]
"""  # noqa: E501


@pytest.fixture(scope="module")
def simulation() -> Iterator[RunningSimulator]:
    """A worker for each release, with nobody on them but us."""
    with running_simulator("--workers", str(len(VERSIONS)), "--no-people") as running:
        for worker, version in zip(running.info.workers, VERSIONS, strict=True):
            change = httpx.patch(
                f"{running.info.control_url}/cml/workers/{worker.instance_id}", json={"version": version}
            )
            assert change.status_code == 204
        yield running


@pytest.fixture(params=VERSIONS)
def worker(simulation: RunningSimulator, request: pytest.FixtureRequest) -> SimulatedWorker:
    return simulation.info.workers[VERSIONS.index(request.param)]


Login = Callable[..., ClientLibrary]


@pytest.fixture
def log_in(worker: SimulatedWorker) -> Iterator[Login]:
    """Makes clients, and closes what they leave open."""
    clients: list[ClientLibrary] = []

    def log_in(**changes: Any) -> ClientLibrary:
        options = {"username": worker.username, "password": worker.password, **changes}
        client = ClientLibrary.__new__(ClientLibrary)
        clients.append(client)  # before its login, which may fail
        ClientLibrary.__init__(
            client,
            worker.url,
            ssl_verify=False,
            raise_for_auth_failure=True,
            convergence_wait_time=0.05,
            **options,
        )
        return client

    yield log_in
    for client in clients:
        client._session.close()


@pytest.fixture
def client(log_in: Login) -> Iterator[ClientLibrary]:
    client = log_in()
    client.licensing.wait_interval = 0.05
    yield client
    for lab in client.all_labs(show_all=True):
        lab.wait_time = 0.05
        lab.stop(wait=True)
        lab.wipe(wait=True)
        lab.remove()


def imported(client: ClientLibrary) -> Any:
    """A lab from the file; imported labs ignore the waiting time that their client was given."""
    lab = client.import_lab(TOPOLOGY)
    lab.wait_time = 0.05
    return lab


def test_a_wrong_password_is_told_as_such(log_in: Login) -> None:
    with pytest.raises(InitializationError, match="check your username and password"):
        log_in(password="guess")


def test_a_lab_is_created_started_converged_stopped_wiped_and_removed(client: ClientLibrary) -> None:
    lab = client.create_lab("by hand", "two nodes", "none")
    router = lab.create_node("r1", "iosv", 0, 0, populate_interfaces=True)
    host = lab.create_node("h1", "alpine", 100, 0)
    link = lab.connect_two_nodes(router, host)
    assert lab.state() == "DEFINED_ON_CORE"

    lab.start(wait=True)
    lab.sync_states()
    assert (lab.state(), router.state, host.state, link.state) == ("STARTED", "BOOTED", "BOOTED", "STARTED")
    assert router.is_booted()
    lab.sync_statistics()
    assert host.statistics["cpu_usage"] > 0
    assert link.statistics["readbytes"] >= 0
    assert lab.details()["node_count"] == 2

    lab.stop(wait=True)
    assert lab.state() == "STOPPED"
    lab.wipe(wait=True)
    assert lab.state() == "DEFINED_ON_CORE"
    lab.remove()
    assert client.get_lab_list() == []


def test_single_nodes_start_stop_and_wipe(client: ClientLibrary) -> None:
    lab = client.create_lab()
    node = lab.create_node("a", "server", 0, 0)
    node.start(wait=True)
    assert node.is_booted()
    assert len(node.console_key()) == 36
    node.extract_configuration()
    node.stop(wait=True)
    node.wipe(wait=True)
    lab.sync_states()
    assert node.state == "DEFINED_ON_CORE"
    node.remove()
    assert lab.nodes() == []


def test_a_lab_is_imported_found_and_downloaded(client: ClientLibrary) -> None:
    lab = client.import_lab(TOPOLOGY, title="imported")
    assert [(node.label, node.node_definition) for node in lab.nodes()] == [("a", "alpine"), ("b", "server")]
    assert [found.id for found in client.find_labs_by_title("imported")] == [lab.id]
    again = client.import_lab(lab.download())
    assert again.title == "imported"
    assert len(again.links()) == 1
    again.title = "renamed"
    again.sync()
    assert again.title == "renamed"


def test_a_lab_removed_by_another_client_becomes_stale(client: ClientLibrary, log_in: Login) -> None:
    lab = imported(client)
    other = log_in().join_existing_lab(lab.id)
    lab.remove()
    with pytest.raises(LabNotFound):
        other.sync()


def test_a_running_lab_cannot_be_removed(client: ClientLibrary) -> None:
    lab = imported(client)
    lab.start(wait=True)
    with pytest.raises(APIError, match="stopped and wiped"):
        lab.remove()


def test_the_server_tells_its_health_and_load(client: ClientLibrary) -> None:
    assert client.is_system_ready()
    assert client.get_system_health()["valid"] is True
    stats = client.get_system_stats()
    assert stats["all"]["cpu"]["count"] > 0
    assert {event["category"] for event in client.system_management.get_telemetry_events()} >= {"cpuinfo"}


def test_licensing_registers_and_deregisters(client: ClientLibrary, simulation: RunningSimulator) -> None:
    assert client.licensing.register_wait(simulation.info.license_token)
    assert client.get_system_health()["is_licensed"] is True
    assert client.licensing.deregister() == 204
    assert client.licensing.status()["registration"]["status"] == "NOT_REGISTERED"
    with pytest.raises(APIError):
        client.licensing.deregister()


def test_an_unknown_license_token_fails_after_it_was_accepted(client: ClientLibrary) -> None:
    assert client.licensing.register("not-a-token")
    client.licensing.wait_for_status("registration", "FAILED")
    client.licensing.deregister()


def test_a_client_that_logged_out_logs_in_again_by_itself(client: ClientLibrary) -> None:
    assert client.logout() is True
    assert client.get_lab_list() == []


def test_users_groups_and_definitions_are_told(client: ClientLibrary) -> None:
    assert client.user_management.user_id("admin") == "00000000-0000-4000-a000-000000000000"
    group = client.group_management.create_group("students")
    assert client.group_management.get_group(group["id"])["name"] == "students"
    client.group_management.delete_group(group["id"])
    assert {"alpine", "iosv"} <= {d["id"] for d in client.definitions.node_definitions()}
    assert client.definitions.image_definitions_for_node_definition("unmanaged_switch") == []


OWN_KIND = {
    "id": "our-host",
    "general": {"nature": "server", "description": "ours", "read_only": False},
    "device": {"interfaces": {"serial_ports": 1, "physical": ["eth0", "eth1"], "has_loopback_zero": False}},
    "ui": {"label": "Ours", "label_prefix": "our-", "icon": "host", "visible": True},
    "sim": {"linux_native": {"libvirt_domain_driver": "kvm", "driver": "server", "ram": 256, "cpus": 1}},
    "boot": {"timeout": 20},
}


def test_a_definition_of_its_own_can_be_uploaded_used_and_removed(client: ClientLibrary) -> None:
    assert client.definitions.upload_node_definition(OWN_KIND) == "Success"
    lab = client.import_lab(TOPOLOGY.replace("alpine", "our-host"))
    lab.wait_time = 0.05
    lab.start(wait=True)
    assert all(node.is_booted() for node in lab.nodes())
    lab.stop(wait=True)
    lab.wipe(wait=True)
    lab.remove()
    client.definitions.remove_node_definition("our-host")
    assert "our-host" not in {d["id"] for d in client.definitions.node_definitions()}


def test_a_resource_pool_has_limits_and_a_usage(client: ClientLibrary) -> None:
    admin = client.user_management.user_id("admin")
    pool = client.resource_pool_management.create_resource_pool("small", licenses=1, users=[admin])
    lab = imported(client)
    with pytest.raises(APIError, match="resource pool small"):
        lab.start(wait=False)
    pool.update({"licenses": 2})
    lab.start(wait=True)
    assert pool.get_usage().usage.licenses == 2
    pool.remove()


def test_the_whole_state_of_a_lab_is_synchronised(client: ClientLibrary) -> None:
    lab = imported(client)
    lab.start(wait=True)
    if client.system_info()["version"].startswith("2.9"):
        # As on real 2.9 servers: this client asks for the interfaces of a lab, which came with 2.10.
        with pytest.raises(APIError, match="Method Not Allowed"):
            lab.sync(topology_only=False)
    else:
        lab.sync(topology_only=False)
    assert all(node.is_booted() for node in lab.nodes())


def test_the_clients_own_listener_sees_nodes_change(log_in: Login, client: ClientLibrary) -> None:
    """Only nodes: a joined lab's own events kill this listener on real servers, too."""
    lab = imported(client)
    watching = log_in(events=True)
    seen: list[tuple[str, str]] = []
    booted = threading.Event()
    handler = watching.event_listener._event_handler

    def notice(event: Any) -> None:
        if event.type == "state_change" and event.lab_id == lab.id and event.element_type == "node":
            seen.append((event.element_id, event.subtype_original))
            if [state for _, state in seen].count("BOOTED") == 2:
                booted.set()

    handler.handle_event = notice
    try:
        assert watching.event_listener._ws_connected_event.wait(PATIENCE_SECONDS)
        lab.start(wait=False)
        assert booted.wait(PATIENCE_SECONDS), seen
    finally:
        watching.stop_event_listening()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # its thread leaves a transport behind
            gc.collect()
    for node in lab.nodes():
        assert [state for node_id, state in seen if node_id == node.id] == ["QUEUED", "STARTED", "BOOTED"]


OLDER_CLIENT = """
import sys
from virl2_client import ClientLibrary
url, username, password = sys.argv[1:]
client = ClientLibrary(url, username, password, ssl_verify=False, convergence_wait_time=0.05)
assert str(client.VERSION).startswith("2.9"), client.VERSION
lab = client.create_lab("older")
a, b = (lab.create_node(name, "alpine", 0, 0, populate_interfaces=True) for name in "ab")
lab.connect_two_nodes(a, b)
lab.start(wait=True)
lab.sync(topology_only=False)
assert a.is_booted() and lab.state() == "STARTED"
lab.stop(wait=True)
lab.wipe(wait=True)
lab.remove()
print("done")
"""


def test_the_client_of_2_9_works_as_well(worker: SimulatedWorker) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(sys.prefix) / "virl2-client-2.9")}
    arguments = [worker.url, worker.username, worker.password]
    done = subprocess.run(
        [sys.executable, "-c", OLDER_CLIENT, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout.strip() == "done", done.stderr
