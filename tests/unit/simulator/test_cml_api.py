"""CML's REST API without sockets: what each release answers, to the key."""

from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.lablet.node_definitions import KNOWN, read_node_definition
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.server import CmlServer, Credentials, Query, ServerOptions
from lcm.simulator.listing import ListedInstance
from lcm.simulator.pace import Delays, Pace

NOW = 1_000_000.0
ADMIN = Credentials("admin", "correct horse")
UNKNOWN = "ffffffff-ffff-4fff-8fff-ffffffffffff"

MINIMAL = """
lab: {title: t, description: d, notes: '', version: 0.3.0}
nodes:
- {id: n0, label: a, node_definition: alpine, x: 0, y: 0, interfaces: [{id: i0, label: eth0, type: physical}]}
- {id: n1, label: b, node_definition: alpine, x: 9, y: 0, interfaces: [{id: i0, label: eth0, type: physical}]}
links: [{id: l0, n1: n0, i1: i0, n2: n1, i2: i0}]
"""


WRITES = (
    ("POST", "authenticate"),
    ("POST", "labs"),
    ("POST", "import"),
    ("PATCH", "labs/{lab}"),
    ("PATCH", "labs/{lab}/associations"),
    ("POST", "labs/{lab}/nodes?populate_interfaces=true"),
    ("PATCH", "labs/{lab}/nodes/{node}"),
    ("POST", "labs/{lab}/interfaces"),
    ("POST", "labs/{lab}/links"),
    ("POST", "licensing/registration"),
    ("PUT", "licensing/product_license"),
    ("PATCH", "licensing/features"),
    ("PUT", "licensing/transport"),
    ("PUT", "telemetry"),
    ("PATCH", "system/maintenance_mode"),
    ("POST", "users"),
    ("PATCH", "users/00000000-0000-4000-a000-000000000000"),
    ("POST", "groups"),
    ("POST", "node_definitions"),
    ("PUT", "node_definitions"),
    ("POST", "image_definitions"),
    ("POST", "resource_pools"),
)
WORDS = (
    *("title", "owner", "autostart", "associations", "groups", "users", "label", "node_definition", "x", "y"),
    *("configuration", "tags", "parameters", "node", "slot", "src_int", "token", "proxy", "ssms", "opt_in"),
    *(
        "general",
        "nature",
        "device",
        "interfaces",
        "physical",
        "sim",
        "linux_native",
        "ram",
        "boot",
        "timeout",
    ),
    *("id", "count", "username", "password", "name", "members", "lab", "nodes", "links", "version"),
)


class Reply(NamedTuple):
    status: int
    body: Any


class Client:
    """A client of one server; time stands still until a test advances it."""

    def __init__(self, version: str = "2.9.1") -> None:
        instance = ListedInstance(
            id="i-1",
            region="us-east-1",
            state="running",
            private_ip="127.64.0.4",
            public_ip="127.64.128.1",
            image_name="CML-2.9.1-20260415",
            image_id="ami-1",
            instance_type="m5zn.metal",
            tags={},
            running_since=NOW - 3600,
            generation=1,
        )
        self.server = CmlServer(
            instance,
            credentials=ADMIN,
            pace=Pace(seed=1, speed=1.0),
            delays=Delays(),
            secret=b"secret",
            pool=LicensePool("good", size=1),
            server_options=ServerOptions(version=version, people=False),
        )
        self.server.power_on(instance)
        self.now = NOW
        self.token = self.login(ADMIN.username, ADMIN.password)

    def login(self, username: str, password: str) -> str:
        wish = msgspec.json.encode({"username": username, "password": password})
        answer = self.server.answer(Query(method="POST", path="/api/v0/authenticate", body=wish), self.now)
        return msgspec.json.decode(answer.body, type=str)

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Reply:
        path, _, query = path.partition("?")
        parameters = dict(pair.split("=") for pair in query.split("&") if pair)
        answer = self.server.answer(
            Query(
                method=method,
                path=f"/api/v0/{path}",
                parameters=parameters,
                authorization=f"Bearer {self.token if token is None else token}",
                body=body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body),
            ),
            self.now,
        )
        is_json = answer.body and answer.content_type == "application/json"
        return Reply(answer.status, msgspec.json.decode(answer.body) if is_json else answer.body)

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.body

    def import_lab(self, text: str = MINIMAL) -> str:
        return str(self.ask("POST", "import", text.encode()).body["id"])

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.server.advance(self.now)


@pytest.fixture
def client() -> Client:
    return Client()


# Errors


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "no_such_thing", None, 404),
        ("GET", "labs/{}/no_such_thing", None, 404),
        ("POST", "system_stats", None, 405),
        ("GET", f"labs/{UNKNOWN}", None, 404),
        ("GET", f"labs/{UNKNOWN}/topology", None, 404),
        ("PUT", f"labs/{UNKNOWN}/start", None, 404),
        ("GET", f"labs/{{}}/nodes/{UNKNOWN}", None, 400),
        ("PUT", f"labs/{{}}/nodes/{UNKNOWN}/state/start", None, 404),
        ("POST", "labs", b"{", 400),
        ("POST", "labs", {"title": "x" * 65}, 400),
        ("POST", "labs", {"title": ""}, 400),
        ("POST", "labs/{}/nodes", {"label": "a", "node_definition": "alpine"}, 400),
        ("POST", "labs/{}/nodes", {"label": "a", "node_definition": "vms", "x": 0, "y": 0}, 400),
        ("POST", "import", b"lab: {title: t, version: 9.9.9}\nnodes: []\nlinks: []", 400),
        ("POST", "import", b"lab: {title: t, version: 0.3.0}\nnodes: []", 400),
        ("POST", "import", b": not yaml [", 400),
        ("POST", "labs/{}/nodes", {"label": 7, "node_definition": "alpine", "x": 0, "y": 0}, 400),
        ("POST", "labs/{}/nodes", {"label": "a", "node_definition": "alpine", "x": 0, "y": 0, "z": 0}, 400),
        ("POST", "labs/{}/interfaces", {"node": 7}, 404),
        ("POST", "labs/{}/links", {"src_int": "a"}, 404),
        ("PUT", "licensing/transport", {"proxy": []}, 400),
        ("PATCH", "licensing/features", [{"id": "x"}], 400),
        ("POST", "licensing/registration", {"token": []}, 400),
        ("POST", "users", {"username": "admin", "password": "x"}, 422),
        ("POST", "users", {"username": "ada"}, 400),
        ("POST", "groups", [], 400),
        ("DELETE", "licensing/deregistration", None, 400),
        ("PATCH", "web_session_timeout/299", None, 400),
    ],
)
def test_every_error_has_its_code_and_exactly_two_keys(
    client: Client, method: str, path: str, body: Any, code: int
) -> None:
    reply = client.ask(method, path.format(client.import_lab()), body)
    assert reply.status == code
    assert reply.body.keys() == {"code", "description"}
    assert reply.body["code"] == code


def test_a_missing_lab_is_reported_in_the_words_the_official_client_expects(client: Client) -> None:
    assert f"Lab not found: {UNKNOWN}" in client.ask("GET", f"labs/{UNKNOWN}/topology").body["description"]


def test_a_body_that_fits_no_schema_leaves_nothing_behind(client: Client) -> None:
    lost = MINIMAL.replace("i2: i0", "i2: i9")
    assert client.ask("POST", "import", lost.encode()).status == 400
    assert client.get("labs") == []


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=5)
        ),
        max_leaves=8,
    ),
    number=st.integers(0, len(WRITES) - 1),
)
def test_no_body_makes_a_server_stumble(body: Any, number: int) -> None:
    client = Client("2.10.0")
    method, path = WRITES[number]
    lab_id = client.import_lab()
    node_id = client.get(f"labs/{lab_id}/nodes")[0]
    reply = client.ask(method, path.format(lab=lab_id, node=node_id), body)
    assert reply.status < 500, reply


# Definitions

OWN_KIND = """
id: our-router
general: {nature: router, description: ours, read_only: false}
device: {interfaces: {serial_ports: 2, physical: [ge0, ge1, ge2], has_loopback_zero: false, default_count: 2}}
ui: {label: Ours, label_prefix: our-, icon: router, visible: true}
sim: {linux_native: {libvirt_domain_driver: kvm, driver: server, ram: 1536, cpus: 2}}
boot: {timeout: 40}
"""


def test_everything_the_domain_knows_is_shipped_with_the_same_needs(client: Client) -> None:
    shipped = [read_node_definition(body) for body in client.get("node_definitions")]
    assert {each.id: replace(each, boot_seconds=None) for each in shipped} == dict(KNOWN)


def test_a_node_definition_can_be_added_and_used(client: Client) -> None:
    assert client.ask("POST", "import", MINIMAL.replace("alpine", "our-router").encode()).status == 400
    assert client.ask("POST", "node_definitions", OWN_KIND.encode()).body == "Success"
    assert client.get("node_definitions/our-router?json=true") == yaml.safe_load(OWN_KIND)
    image = {"id": "ours-1", "node_definition_id": "our-router", "label": "1", "disk_image": "ours-1.qcow2"}
    assert client.ask("POST", "image_definitions", image).body == "Success"
    [found] = client.get("node_definitions/our-router/image_definitions")
    assert image.items() <= found.items()
    assert (found["ram"], found["boot_disk_size"]) == (None, None)  # as the node definition says
    lab_id = client.import_lab(MINIMAL.replace("alpine", "our-router"))
    client.ask("PUT", f"labs/{lab_id}/start")
    client.pass_time(60)
    assert set(client.get(f"labs/{lab_id}/lab_element_state")["nodes"].values()) == {"BOOTED"}
    (first, _) = client.get(f"labs/{lab_id}/nodes?data=true&operational=true")
    assert len(first["operational"]["serial_consoles"]) == 2
    assert first["operational"]["ram"] == 1536


def test_a_definition_in_use_or_of_cml_itself_stays(client: Client) -> None:
    client.ask("POST", "node_definitions", OWN_KIND.encode())
    lab_id = client.import_lab(MINIMAL.replace("alpine", "our-router"))
    assert client.ask("DELETE", "node_definitions/our-router").status == 400
    assert client.ask("DELETE", "node_definitions/alpine").status == 403
    assert client.ask("POST", "node_definitions", OWN_KIND.encode()).status == 400, "it exists"
    client.ask("DELETE", f"labs/{lab_id}")
    assert client.ask("DELETE", "node_definitions/our-router").status == 204


# Resource pools


def test_a_pool_limits_what_its_users_start_together(client: Client) -> None:
    ada = client.ask("POST", "users", {"username": "ada", "password": "s3cret"}).body["id"]
    pool = client.ask("POST", "resource_pools", {"label": "class", "licenses": 3, "users": [ada]}).body
    token = client.login("ada", "s3cret")
    first, second = (
        str(client.ask("POST", "import", MINIMAL.encode(), token=token).body["id"]) for _ in range(2)
    )
    assert client.ask("PUT", f"labs/{first}/start", token=token).status == 204
    client.pass_time(60)
    refusal = client.ask("PUT", f"labs/{second}/start", token=token)
    assert (refusal.status, "class" in refusal.body["description"]) == (400, True)
    assert set(client.get(f"labs/{second}/lab_element_state")["nodes"].values()) == {"DEFINED_ON_CORE"}
    usage = client.get(f"resource_pool_usage/{pool['id']}")
    assert (usage["limit"]["licenses"], usage["usage"]["licenses"], usage["usage"]["ram"]) == (3, 2, 1024)
    assert client.get(f"labs/{first}/resource_pools") == [pool["id"]]
    assert client.get(f"users/{ada}")["resource_pool"] == pool["id"]
    assert client.ask("PUT", f"labs/{second}/start").status == 204, "an administrator has no pool"


def test_only_administrators_manage_pools_and_users_see_their_own(client: Client) -> None:
    ada = client.ask("POST", "users", {"username": "ada", "password": "s3cret"}).body["id"]
    client.ask("POST", "resource_pools", {"label": "other"})
    own = client.ask("POST", "resource_pools", {"label": "own", "users": [ada]}).body
    token = client.login("ada", "s3cret")
    assert client.ask("POST", "resource_pools", {"label": "more"}, token=token).status == 403
    assert client.ask("GET", "resource_pools", token=token).body == [own["id"]]
    assert len(client.get("resource_pools?data=true")) == 2
    assert client.ask("DELETE", f"resource_pools/{own['id']}").status == 204
    assert client.ask("GET", f"resource_pools/{own['id']}").status == 404


# Access


def test_logging_out_kills_this_token_or_all_of_them(client: Client) -> None:
    second, third = (client.login(ADMIN.username, ADMIN.password) for _ in range(2))
    assert client.ask("DELETE", "logout", token=second).body is True
    assert client.ask("GET", "authok", token=second).status == 401
    assert client.ask("GET", "authok", token=third).status == 200
    client.ask("DELETE", "logout?clear_all_sessions=true")
    assert client.ask("GET", "authok", token=third).status == 401


def test_auth_extended_names_the_user(client: Client) -> None:
    body = client.ask("POST", "auth_extended", {"username": "admin", "password": "correct horse"}).body
    assert client.ask("GET", "authok", token=body.pop("token")).body == "OK"
    assert body == {"username": "admin", "id": ADMIN_ID, "admin": True, "error": None}


def test_only_administrators_see_licensing_and_others_labs(client: Client) -> None:
    lab_id = client.import_lab()
    assert client.ask("POST", "users", {"username": "ada", "password": "pw"}).status == 201
    ada = client.login("ada", "pw")
    assert client.ask("GET", "licensing", token=ada).status == 403
    assert client.ask("GET", f"labs/{lab_id}", token=ada).status == 404
    assert client.ask("GET", "labs?show_all=true", token=ada).body == []


def test_our_own_requests_are_a_user_activity_once_a_minute(client: Client) -> None:
    def activities() -> list[str]:
        events = client.get("telemetry/events")
        return [e["data"]["user_id"] for e in events if e["category"] == "user_activity"]

    assert activities() == activities() == [ADMIN_ID]
    client.pass_time(61)
    assert activities() == [ADMIN_ID, ADMIN_ID]


# Releases


LAB_KEYS = {
    "id",
    "created",
    "modified",
    "lab_title",
    "lab_description",
    "lab_notes",
    "owner",
    "owner_username",
    "owner_fullname",
    "state",
    "node_count",
    "link_count",
    "groups",
}


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2.8.1", set()),
        ("2.9.1", {"effective_permissions"}),
        ("2.10.0", {"effective_permissions", "autostart", "node_staging"}),
    ],
)
def test_a_lab_has_the_keys_of_its_release_and_no_other(version: str, more: set[str]) -> None:
    client = Client(version)
    assert client.ask("POST", "labs", {}).body.keys() == LAB_KEYS | more


@pytest.mark.parametrize(("version", "status"), [("2.9.1", 404), ("2.10.0", 200)])
def test_authentication_came_with_2_10(version: str, status: int) -> None:
    assert Client(version).ask("GET", "authentication").status == status


@pytest.mark.parametrize(("version", "status"), [("2.9.1", 405), ("2.10.0", 200)])
def test_the_list_of_interfaces_came_with_2_10(version: str, status: int) -> None:
    client = Client(version)
    assert client.ask("GET", f"labs/{client.import_lab()}/interfaces").status == status


@pytest.mark.parametrize(("version", "opt_in"), [("2.9.1", None), ("2.10.0", "unset")])
def test_opting_in_is_a_word_since_2_10(version: str, opt_in: str | None) -> None:
    assert Client(version).get("telemetry") == {"opt_in": opt_in, "show_modal": True}


@pytest.mark.parametrize("opt_in", ["perhaps", [], {}, 2])
def test_opting_in_by_an_unknown_word_is_refused(client: Client, opt_in: object) -> None:
    assert client.ask("PUT", "telemetry", {"opt_in": opt_in}).status == 400


@pytest.mark.parametrize("version", ["2.6.1", "2.7.2", "2.8.1", "2.9.1", "2.10.0"])
def test_a_server_simulates_the_release_of_its_options(version: str) -> None:
    assert Client(version).get("system_information")["version"].startswith(f"{version}+build.")


# Labs


def test_a_downloaded_lab_can_be_imported_again(client: Client) -> None:
    text = client.ask("GET", f"labs/{client.import_lab()}/download").body
    again = client.ask("POST", "import?title=again", text).body["id"]
    body = client.get(f"labs/{again}/topology")
    assert body["lab"]["title"] == "again"
    assert [node["label"] for node in body["nodes"]] == ["a", "b"]
    assert body["links"][0]["label"] == "a-eth0<->b-eth0"
    assert yaml.safe_load(text)["links"][0]["n1"] == "n0"


def test_converging_takes_time_and_shows_in_every_place(client: Client) -> None:
    lab_id = client.import_lab()
    assert client.get(f"labs/{lab_id}/check_if_converged") is True
    assert client.ask("PUT", f"labs/{lab_id}/start") == Reply(204, b"")
    assert client.get(f"labs/{lab_id}/check_if_converged") is False
    assert client.get(f"labs/{lab_id}/state") == "STARTED"
    client.pass_time(30)
    assert client.get(f"labs/{lab_id}/check_if_converged") is True
    states = client.get(f"labs/{lab_id}/lab_element_state")
    assert set(states["nodes"].values()) == {"BOOTED"}
    assert set(states["interfaces"].values()) | set(states["links"].values()) == {"STARTED"}
    stats = client.get(f"labs/{lab_id}/simulation_stats")
    assert stats["nodes"].keys() == states["nodes"].keys()
    assert all(node["cpu_usage"] > 0 for node in stats["nodes"].values())
    assert all(link["readbytes"] > 0 for link in stats["links"].values())


def test_the_host_shows_what_its_nodes_take(client: Client) -> None:
    before = client.get("system_stats")
    lab_id = client.import_lab()
    client.ask("PUT", f"labs/{lab_id}/start")
    client.pass_time(30)
    after = client.get("system_stats")
    (dominfo,) = (compute["stats"]["dominfo"] for compute in after["computes"].values())
    assert dominfo == {
        "allocated_cpus": 2,
        "allocated_memory": 2 * 512 * 1024,
        "total_nodes": 2,
        "total_orphans": 0,
        "running_nodes": 2,
        "running_orphans": 0,
    }
    assert after["all"]["memory"]["used"] > before["all"]["memory"]["used"]


def test_configurations_come_in_the_form_that_was_asked_for(client: Client) -> None:
    lab_id = client.import_lab()
    node_id = client.get(f"labs/{lab_id}/nodes")[0]
    wish = {"configuration": [{"name": "Main", "content": "hostname a"}]}
    assert client.ask("PATCH", f"labs/{lab_id}/nodes/{node_id}", wish).body == node_id
    asked = {
        query: client.get(f"labs/{lab_id}/topology{query}")["nodes"][0].get("configuration", "absent")
        for query in ("", "?exclude_configurations=false", "?exclude_configurations=true")
    }
    assert asked == {
        "": "hostname a",
        "?exclude_configurations=false": [{"name": "Main", "content": "hostname a"}],
        "?exclude_configurations=true": "absent",
    }


def test_a_console_has_a_key_only_while_its_node_runs(client: Client) -> None:
    lab_id = client.import_lab()
    node_id = client.get(f"labs/{lab_id}/nodes")[0]
    assert client.ask("GET", f"labs/{lab_id}/nodes/{node_id}/keys/console").status == 404
    client.ask("PUT", f"labs/{lab_id}/nodes/{node_id}/state/start")
    client.pass_time(30)
    key = client.get(f"labs/{lab_id}/nodes/{node_id}/keys/console")
    assert client.get("keys/console")[key]["node_id"] == node_id
    operational = client.get(f"labs/{lab_id}/nodes/{node_id}?operational=true")["operational"]
    assert operational["serial_consoles"][0]["console_key"] == key


def test_labs_survive_a_reboot_with_their_nodes_stopped(client: Client) -> None:
    lab_id = client.import_lab()
    client.ask("PUT", f"labs/{lab_id}/start")
    client.pass_time(30)
    client.server.power_on(msgspec.structs.replace(client.server.instance, generation=2))
    assert client.get(f"labs/{lab_id}/state") == "STOPPED"


def test_telemetry_events_have_exactly_three_keys_and_known_categories(client: Client) -> None:
    lab_id = client.import_lab()
    client.ask("PUT", f"labs/{lab_id}/start")
    client.pass_time(30)
    client.ask("GET", f"labs/{lab_id}/download")
    events = client.get("telemetry/events")
    assert all(event.keys() == {"category", "timestamp", "data"} for event in events)
    told = [event["category"] for event in events]
    assert {"import_lab", "start_lab", "queue_node", "start_node", "boot_node", "export_lab"} <= set(told)
    assert not {"create_lab", "wipe_lab", "delete_lab"} & set(told)


@pytest.mark.parametrize("has_kvm", [True, False])
def test_the_health_of_a_server_says_whether_its_processor_runs_virtual_machines(has_kvm: bool) -> None:
    client = Client()
    client.server.power_on(msgspec.structs.replace(client.server.instance, has_kvm=has_kvm))
    client.pass_time(3600)
    [compute] = client.get("system_health")["computes"].values()
    assert compute["kvm_vmx_enabled"] is has_kvm
