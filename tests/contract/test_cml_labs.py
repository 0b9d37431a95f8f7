"""What CML's labs API guarantees: the one in memory and the simulator over TLS alike."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.sessions import CmlServer
from lcm.core.clock import SystemClock
from lcm.domain.errors import CertificateChanged, LabRefused, LcmError, NotFound, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.observation import Absent, Known, Unknown
from lcm.lablet_controller.adapters.cml_labs import CmlLabsClient
from lcm.lablet_controller.ports import CmlLab, CmlLabs, CmlNode, ElementState
from lcm.simulator.cml import faults
from lcm.simulator.cml.lab_faults import NeverBoots, RefuseLab
from lcm.simulator.cml.server import CmlServer as SimulatedCml
from lcm.simulator.cml.site import Site
from support.labs_over_tls import ADMIN, HOST, cml_over_tls, simulated_cml
from support.memory_labs import MemoryCmlLabs
from support.processes import eventually

SERVER = CmlServer(WorkerId("w-1"), InstanceId("i-1"), HOST, None, None)
NO_LAB = "00000000-0000-4000-8000-000000000000"
USER = Credentials("student", "tr0ub4dor")

PAIR = """
lab: {title: from the file, description: two hosts, notes: 'lcm:session=1', version: 0.3.0}
nodes:
- id: n0
  label: host
  node_definition: alpine
  x: 0
  y: 0
  tags: ['serial:4000']
  interfaces: [{id: i0, label: eth0, slot: 0, type: physical}]
- id: n1
  label: switch
  node_definition: unmanaged_switch
  x: 100
  y: 0
  interfaces: [{id: i0, label: port0, slot: 0, type: physical}]
links: [{id: l0, n1: n0, i1: i0, n2: n1, i2: i0}]
"""
BAD = PAIR.replace("alpine", "no-such-kind")


class Bench(Protocol):
    """One server, and the labs API of LCM's account and of a user."""

    labs: CmlLabs
    labs_of_user: CmlLabs
    cml: SimulatedCml

    async def until(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass until it is so."""
        ...

    def fail(self) -> None:
        """Answer every call with 502."""
        ...

    def change_certificate(self) -> None: ...

    def cut_import(self) -> None:
        """Apply the next import, and lose its answer."""
        ...


class ManualClock(SystemClock):
    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class MemoryBench:
    def __init__(self) -> None:
        self._clock = ManualClock()
        self.cml = simulated_cml(running_since=self._clock.at)
        user = self.cml.accounts.add_user(0.0, username=USER.username, password=USER.password)
        self._labs = MemoryCmlLabs(self._clock)
        self._labs_of_user = MemoryCmlLabs(self._clock, user.id)
        self.labs: CmlLabs = self._labs
        self.labs_of_user: CmlLabs = self._labs_of_user
        for labs in (self._labs, self._labs_of_user):
            labs.servers[HOST] = self.cml

    async def until(self, check: Callable[[], Awaitable[bool]]) -> None:
        while not await check():
            at = self.cml.labs.next_change_at()
            assert at is not None, "nothing will change by itself"
            self._clock.at = at + 0.001  # a datetime has microseconds only

    def fail(self) -> None:
        self._fail_with(Unreachable("502"))

    def change_certificate(self) -> None:
        self._fail_with(CertificateChanged("another one"))

    def cut_import(self) -> None:
        self._labs.cut.add("import_lab")

    def _fail_with(self, error: LcmError) -> None:
        self._labs.failing |= dict.fromkeys(("get_lab", "list_labs", "start_lab", "nodes"), error)


class TlsBench:
    def __init__(self, site: Site, connections: CmlConnections) -> None:
        self._site = site
        self.cml = site.server
        self.cml.accounts.add_user(0.0, username=USER.username, password=USER.password)
        ours = Credentials(ADMIN.username, ADMIN.password)
        self.labs: CmlLabs = _client(connections, ours)
        self.labs_of_user: CmlLabs = _client(connections, USER)

    until = staticmethod(eventually)

    def fail(self) -> None:
        self._site.apply_fault(faults.Http(status=502))

    def change_certificate(self) -> None:
        self._site.apply_fault(faults.Certificate())

    def cut_import(self) -> None:
        self._site.apply_fault(faults.Http(status=None, path="/api/v0/import", applied=True, count=1))


def _client(connections: CmlConnections, login: Credentials) -> CmlLabsClient:
    session = CmlSession(connections, always(login), HOST, None, SystemClock())
    return CmlLabsClient(lambda _: session, SystemClock())


@pytest.fixture(params=["memory", "simulator"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    async with cml_over_tls() as (site, port), CmlConnections(port=port) as connections:
        yield TlsBench(site, connections)


async def imported(bench: Bench, topology: str = PAIR, title: str = "a lab") -> str:
    return (await bench.labs.import_lab(SERVER, topology, title=title)).lab_id


async def described(labs: CmlLabs, lab_id: str) -> CmlLab:
    observation = await labs.get_lab(SERVER, lab_id)
    assert isinstance(observation, Known)
    return observation.value


async def node(bench: Bench, lab_id: str, label: str = "host") -> CmlNode:
    (found,) = [each for each in await bench.labs.nodes(SERVER, lab_id) if each.label == label]
    return found


async def booted(bench: Bench, lab_id: str) -> None:
    async def is_up() -> bool:
        states = await bench.labs.element_states(SERVER, lab_id)
        return set(states.nodes.values()) == {ElementState.BOOTED}

    await bench.labs.start_lab(SERVER, lab_id)
    await bench.until(is_up)


async def settled(bench: Bench, lab_id: str) -> None:
    await bench.until(lambda: bench.labs.has_converged(SERVER, lab_id))


async def test_an_imported_lab_rests_under_its_title_with_what_the_file_says(bench: Bench) -> None:
    title = "lcm-0a1b2c3d4e5f-g1 A+B & 100 % / ü"
    lab = await described(bench.labs, await imported(bench, title=title))
    assert (lab.title, lab.description, lab.notes) == (title, "two hosts", "lcm:session=1")
    assert (lab.state, lab.node_count, lab.link_count) == (ElementState.DEFINED_ON_CORE, 2, 1)
    assert lab.owner == "admin"
    assert lab.created is not None
    assert await bench.labs.has_converged(SERVER, lab.id), "which is no proof that it runs"


async def test_every_import_makes_another_lab(bench: Bench) -> None:
    assert await imported(bench) != await imported(bench)


@pytest.mark.parametrize("topology", [BAD, "no topology", PAIR.replace("i1: i0", "i1: i7")])
async def test_a_refused_import_leaves_no_lab_and_says_why(bench: Bench, topology: str) -> None:
    with pytest.raises(LabRefused) as refusal:
        await imported(bench, topology)
    assert refusal.value.status == 400
    assert refusal.value.description
    assert (await bench.labs.list_labs(SERVER)).lab_ids == ()


async def test_a_title_of_more_than_64_characters_is_refused(bench: Bench) -> None:
    with pytest.raises(LabRefused, match="64"):
        await imported(bench, title="x" * 65)


async def test_a_lab_starts_converges_stops_is_wiped_and_deleted(bench: Bench) -> None:
    lab_id = await imported(bench)
    await booted(bench, lab_id)
    await settled(bench, lab_id)
    assert (await described(bench.labs, lab_id)).state is ElementState.STARTED
    await bench.labs.stop_lab(SERVER, lab_id)
    await settled(bench, lab_id)
    assert (await described(bench.labs, lab_id)).state is ElementState.STOPPED
    await bench.labs.wipe_lab(SERVER, lab_id)
    await bench.labs.delete_lab(SERVER, lab_id)
    assert isinstance(await bench.labs.get_lab(SERVER, lab_id), Absent)
    assert (await bench.labs.list_labs(SERVER)).lab_ids == ()


async def test_a_repeated_change_succeeds(bench: Bench) -> None:
    lab_id = await imported(bench)
    await bench.labs.stop_lab(SERVER, lab_id)
    await bench.labs.wipe_lab(SERVER, lab_id)
    await booted(bench, lab_id)
    await bench.labs.start_lab(SERVER, lab_id)
    assert (await node(bench, lab_id)).state is ElementState.BOOTED
    for _ in range(2):
        await bench.labs.stop_lab(SERVER, lab_id)
    await settled(bench, lab_id)
    await bench.labs.wipe_lab(SERVER, lab_id)
    for _ in range(2):
        await bench.labs.delete_lab(SERVER, lab_id)


async def test_a_running_lab_is_neither_wiped_nor_deleted(bench: Bench) -> None:
    lab_id = await imported(bench)
    await booted(bench, lab_id)
    with pytest.raises(LabRefused):
        await bench.labs.wipe_lab(SERVER, lab_id)
    with pytest.raises(LabRefused):
        await bench.labs.delete_lab(SERVER, lab_id)
    await bench.labs.stop_lab(SERVER, lab_id)
    await settled(bench, lab_id)
    with pytest.raises(LabRefused):
        await bench.labs.delete_lab(SERVER, lab_id)
    assert (await described(bench.labs, lab_id)).state is ElementState.STOPPED


async def test_calls_about_an_unknown_lab_raise_not_found(bench: Bench) -> None:
    for call in (bench.labs.start_lab, bench.labs.stop_lab, bench.labs.wipe_lab, bench.labs.download_lab):
        with pytest.raises(NotFound):
            await call(SERVER, NO_LAB)
    for read in (bench.labs.nodes, bench.labs.element_states, bench.labs.has_converged):
        with pytest.raises(NotFound):
            await read(SERVER, NO_LAB)
    await bench.labs.delete_lab(SERVER, NO_LAB)


async def test_an_unknown_node_is_a_refusal_and_no_missing_lab(bench: Bench) -> None:
    with pytest.raises(LabRefused, match="Node not found"):
        await bench.labs.set_node_tags(SERVER, await imported(bench), NO_LAB, [])


async def test_a_node_stands_where_its_author_placed_it(bench: Bench) -> None:
    switch = await node(bench, await imported(bench), "switch")
    assert (switch.x, switch.y) == (100, 0)


async def test_consoles_have_keys_only_while_their_node_runs(bench: Bench) -> None:
    lab_id = await imported(bench)
    assert (await node(bench, lab_id)).consoles == ()
    await booted(bench, lab_id)
    up = await node(bench, lab_id)
    assert [console.line for console in up.consoles] == [0]
    assert up.consoles[0].key
    assert up.vnc_key
    assert (await node(bench, lab_id, "switch")).consoles == ()


async def test_tags_are_replaced_as_a_whole(bench: Bench) -> None:
    lab_id = await imported(bench)
    host = await node(bench, lab_id)
    assert host.tags == ("serial:4000",)
    for _ in range(2):
        await bench.labs.set_node_tags(SERVER, lab_id, host.id, ["serial:5000", "pat:tcp:5001:22"])
        assert (await node(bench, lab_id)).tags == ("serial:5000", "pat:tcp:5001:22")


async def test_one_node_can_be_stopped(bench: Bench) -> None:
    lab_id = await imported(bench)
    await booted(bench, lab_id)
    await bench.labs.stop_node(SERVER, lab_id, (await node(bench, lab_id)).id)
    await settled(bench, lab_id)
    assert (await node(bench, lab_id)).state is ElementState.STOPPED
    assert (await node(bench, lab_id, "switch")).state is ElementState.BOOTED


async def test_a_download_can_be_imported_and_has_the_extracted_configurations(bench: Bench) -> None:
    lab_id = await imported(bench)
    host, switch = await node(bench, lab_id), await node(bench, lab_id, "switch")
    with pytest.raises(LabRefused):
        await bench.labs.extract_configuration(SERVER, lab_id, host.id)
    await booted(bench, lab_id)
    await bench.labs.extract_configuration(SERVER, lab_id, host.id)
    with pytest.raises(LabRefused):
        await bench.labs.extract_configuration(SERVER, lab_id, switch.id)
    text = await bench.labs.download_lab(SERVER, lab_id)
    assert "hostname host" in text
    assert (await node(bench, await imported(bench, text))).tags == ("serial:4000",)


async def test_the_states_name_every_element(bench: Bench) -> None:
    lab_id = await imported(bench)
    await booted(bench, lab_id)
    states = await bench.labs.element_states(SERVER, lab_id)
    assert [*states.interfaces.values()] == [ElementState.STARTED] * 2
    assert [*states.links.values()] == [ElementState.STARTED]
    assert states.nodes.keys() == {each.id for each in await bench.labs.nodes(SERVER, lab_id)}


async def test_only_an_administrators_listing_of_all_labs_is_complete(bench: Bench) -> None:
    ours = await imported(bench)
    theirs = (await bench.labs_of_user.import_lab(SERVER, PAIR, title="theirs")).lab_id
    listing = await bench.labs.list_labs(SERVER)
    assert (set(listing.lab_ids), listing.is_complete) == ({ours, theirs}, True)
    listing = await bench.labs.list_labs(SERVER, show_all=False)
    assert (listing.lab_ids, listing.is_complete) == ((ours,), False)
    listing = await bench.labs_of_user.list_labs(SERVER)
    assert (listing.lab_ids, listing.is_complete) == ((theirs,), False)


async def test_what_an_ordinary_account_is_not_shown_is_unknown_and_not_absent(bench: Bench) -> None:
    lab_id = await imported(bench)
    observation = await bench.labs_of_user.get_lab(SERVER, lab_id)
    assert isinstance(observation, Unknown)


async def test_a_failing_server_proves_nothing(bench: Bench) -> None:
    lab_id = await imported(bench)
    bench.fail()
    for each in (lab_id, NO_LAB):
        observation = await bench.labs.get_lab(SERVER, each)
        assert isinstance(observation, Unknown)
        assert observation.is_failure
    with pytest.raises(Unreachable):
        await bench.labs.list_labs(SERVER)
    with pytest.raises(Unreachable):
        await bench.labs.start_lab(SERVER, lab_id)


async def test_a_server_with_another_certificate_proves_nothing(bench: Bench) -> None:
    lab_id = await imported(bench)
    bench.change_certificate()
    assert isinstance(await bench.labs.get_lab(SERVER, lab_id), Unknown)
    with pytest.raises(CertificateChanged):
        await bench.labs.start_lab(SERVER, lab_id)
    assert all(lab.state == "DEFINED_ON_CORE" for lab in bench.cml.labs.all())


async def test_definitions_have_the_needs_of_their_nodes(bench: Bench) -> None:
    definitions = {each.id: each for each in await bench.labs.node_definitions(SERVER)}
    assert (definitions["nxosv9000"].ram_mb, definitions["nxosv9000"].cpus) == (12288, 4)
    assert not definitions["unmanaged_switch"].has_vm
    images = await bench.labs.image_definitions(SERVER)
    assert {"alpine", "iosv"} <= {image.node_definition_id for image in images}


async def test_an_import_whose_answer_is_lost_may_have_made_the_lab(bench: Bench) -> None:
    bench.cut_import()
    with pytest.raises(Unreachable):
        await imported(bench, title="lcm-1-g1")
    (lab_id,) = (await bench.labs.list_labs(SERVER)).lab_ids
    assert (await described(bench.labs, lab_id)).title == "lcm-1-g1"


async def test_a_refused_start_says_why_in_cmls_words(bench: Bench) -> None:
    lab_id = await imported(bench)
    bench.cml.labs.faults.add(RefuseLab(action="start", reason="license", count=1))
    with pytest.raises(LabRefused, match="license") as refusal:
        await bench.labs.start_lab(SERVER, lab_id)
    assert "license" in refusal.value.description
    assert (await described(bench.labs, lab_id)).state is ElementState.DEFINED_ON_CORE
    await booted(bench, lab_id)


async def test_a_lab_with_a_node_that_never_boots_does_not_converge(bench: Bench) -> None:
    lab_id = await imported(bench)
    bench.cml.labs.faults.add(NeverBoots(node="host"))
    await bench.labs.start_lab(SERVER, lab_id)

    async def has_one_booted() -> bool:
        states = await bench.labs.element_states(SERVER, lab_id)
        return set(states.nodes.values()) == {ElementState.STARTED, ElementState.BOOTED}

    await bench.until(has_one_booted)
    assert not await bench.labs.has_converged(SERVER, lab_id)
