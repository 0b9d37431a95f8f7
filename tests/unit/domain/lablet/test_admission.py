"""Everything that may refuse a session is judged on the record that takes its claim."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.errors import NoFreePort, PlacementRefused
from lcm.domain.lablet.admission import claim, find_claim, move_end, release, retain
from lcm.domain.lablet.claim import Reserve, allocatable, allocated
from lcm.domain.lablet.definition import Demand, LicenseTier
from lcm.domain.lablet.filters import Label, fits, vector
from lcm.domain.lablet.listed_lab import LabSummary
from lcm.domain.lablet.ports import PortKind, PortRange, PortSpec
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPED, DesiredStatus
from lcm.domain.worker import CmlHealth, CmlLicense, Worker
from support.core import NOON, a_worker, with_fields

SIZE = Capacity(cpu=10, memory_gb=20, storage_gb=100, nodes=20)
SSH = PortSpec(name="r1_ssh", node="r1", kind=PortKind.PAT, protocol="tcp", inside=22)
DEMAND = Demand(
    needs=Capacity(cpu=4, memory_gb=8, storage_gb=10, nodes=4),
    ports=(SSH,),
    license_affinity=(LicenseTier.ENTERPRISE,),
    cml_version_min="2.9",
    region="eu-west-1",
)
PERSONAL = CmlLicense(registration_status="COMPLETED", product_license="CML_Personal")
ENTERPRISE = CmlLicense(registration_status="COMPLETED", product_license="CML_Enterprise")


def ready() -> Worker:
    worker = a_worker(status=RUNNING, declared_capacity=SIZE)
    return with_cml(worker, is_ready=True, version="2.10.1", license=ENTERPRISE)


def with_cml(worker: Worker, **changes: Any) -> Worker:
    return replace(worker, cml=replace(worker.cml, **changes))


def claimed(
    worker: Worker, demand: Demand = DEMAND, session: str = "s", ports: PortRange | None = None
) -> Worker:
    return claim(
        worker,
        demand,
        session_id=session,
        attempt=1,
        ends_at=None,
        ports=ports or PortRange(),
        now=NOON,
    )


def test_a_ready_worker_with_room_takes_the_session() -> None:
    worker = claimed(ready())
    assert find_claim(worker, "s", 1) is not None
    assert claimed(worker) is worker


@pytest.mark.parametrize(
    ("worker", "label"),
    [
        (with_fields(ready(), status=STOPPED), Label.STATUS),
        (with_fields(ready(), status=DRAINING), Label.STATUS),
        (with_fields(ready(), desired_status=DesiredStatus.STOPPED), Label.STATUS),
        (with_fields(ready(), desired_status=DesiredStatus.TERMINATED), Label.STATUS),
        (with_fields(ready(), aws_region="us-east-1"), Label.STATUS),
        (with_cml(ready(), is_ready=False), Label.STATUS),
        (with_cml(ready(), license=PERSONAL), Label.LICENSE),
        (with_cml(ready(), license=None), Label.LICENSE),
        (with_cml(ready(), health=CmlHealth(is_licensed=False)), Label.LICENSE),
        (with_fields(ready(), declared_capacity=None), Label.CAPACITY),
        (with_fields(ready(), reserve=Reserve(cpu=7)), Label.CAPACITY),
        (with_fields(ready(), reserve=Reserve(memory_gb=13)), Label.CAPACITY),
        (with_fields(ready(), reserve=Reserve(storage_gb=91)), Label.CAPACITY),
        (with_cml(ready(), version="2.8.1"), Label.AMI),
    ],
)
def test_what_has_changed_since_the_decision_refuses_the_claim(worker: Worker, label: Label) -> None:
    with pytest.raises(PlacementRefused) as refused:
        claimed(worker)
    assert refused.value.label == label


def test_a_worker_whose_cml_finds_no_kvm_takes_no_lab_that_needs_it() -> None:
    worker = with_cml(ready(), health=CmlHealth(is_licensed=True, failing=("cml: kvm_vmx_enabled",)))
    demanding = replace(DEMAND, needs_nested_virtualization=True)
    for taker, demand in ((ready(), demanding), (worker, DEMAND)):
        assert find_claim(claimed(taker, demand), "s", 1) is not None
    with pytest.raises(PlacementRefused, match="nested_virt") as refused:
        claimed(worker, demanding)
    assert refused.value.label == Label.AMI


def test_claims_that_came_first_count() -> None:
    worker = claimed(claimed(ready(), session="a"), session="b")
    with pytest.raises(PlacementRefused) as refused:
        claimed(worker, session="c")
    assert refused.value.label == Label.CAPACITY


def test_a_personal_license_carries_twenty_nodes_of_all_sessions_together() -> None:
    demand = Demand(needs=Capacity(nodes=15))
    worker = with_cml(with_fields(ready(), declared_capacity=replace(SIZE, nodes=100)), license=PERSONAL)
    with pytest.raises(PlacementRefused) as refused:
        claimed(claimed(worker, demand, "a"), demand, "b")
    assert refused.value.label == Label.LICENSE


def test_ports_that_are_granted_are_not_granted_again() -> None:
    two = PortRange(first=2000, last=2000)
    worker = claimed(ready(), session="a", ports=two)
    with pytest.raises((PlacementRefused, NoFreePort)) as refused:
        claimed(worker, session="b", ports=two)
    assert getattr(refused.value, "label", Label.PORTS) == Label.PORTS


steps = st.tuples(
    st.sampled_from(["claim", "release", "retain", "extend"]),
    st.integers(0, 7),
    st.integers(0, 6),
    st.integers(0, 3),
)


@given(st.lists(steps, max_size=40), st.floats(1, 4), st.integers(0, 5))
def test_claims_never_exceed_what_is_allocatable_and_never_share_a_port(
    made: list[tuple[str, int, int, int]], overcommit: float, reserved: int
) -> None:
    reserve = Reserve(cpu=reserved, memory_gb=reserved, cpu_overcommit=overcommit)
    worker = with_fields(ready(), reserve=reserve)
    within = PortRange(first=2000, last=2008)
    for minute, (what, number, amount, ports) in enumerate(made):
        now, name = NOON + timedelta(minutes=minute), f"s{number}"
        with suppress(PlacementRefused, NoFreePort):
            worker = _step(worker, what, name, amount, ports, within, now)
        assert fits(vector(allocated(worker.claims)), vector(allocatable(SIZE, reserve)))
        granted = [port for each in worker.claims for port in each.ports.values()]
        assert len(set(granted)) == len(granted)
        assert all(port in within for port in granted)


def _step(
    worker: Worker, what: str, name: str, amount: int, ports: int, within: PortRange, now: datetime
) -> Worker:
    if what == "release":
        return release(worker, name, 1, now=now)
    if what == "retain":
        return retain(worker, name, 1, lab_generation=1, now=now)
    if what == "extend":
        return move_end(worker, name, 1, now, now=now)
    demand = Demand(
        needs=Capacity(cpu=amount, memory_gb=amount, storage_gb=amount, nodes=1),
        ports=tuple(replace(SSH, name=f"p{each}", node=f"n{each}") for each in range(ports)),
    )
    return claim(worker, demand, session_id=name, attempt=1, ends_at=None, ports=within, now=now)


def with_foreign(worker: Worker, *ports: int, **load: float) -> Worker:
    """The worker with labs of people on it."""
    labs = LabSummary(foreign_ports=ports, foreign_load=Capacity(**load))
    return with_cml(worker, labs=labs)


def test_a_port_in_the_tags_of_a_foreign_lab_is_not_granted() -> None:
    worker = claimed(with_foreign(ready(), 2000, 2001))
    assert worker.claims[0].ports == {"r1_ssh": 2002}


def test_a_port_that_an_author_requires_is_refused_while_a_foreign_lab_uses_it() -> None:
    demand = replace(DEMAND, ports=(replace(SSH, fixed=2005),))
    with pytest.raises(PlacementRefused) as refused:
        claimed(with_foreign(ready(), 2005), demand)
    assert refused.value.label is Label.PORTS


def test_the_running_nodes_of_foreign_labs_leave_less_room() -> None:
    assert claimed(with_foreign(ready(), memory_gb=12)).claims != ()
    with pytest.raises(PlacementRefused) as refused:
        claimed(with_foreign(ready(), memory_gb=12.5))
    assert refused.value.label is Label.CAPACITY
    assert "12.5 used by labs of no session" in str(refused.value)


def test_the_nodes_of_foreign_labs_count_for_a_license_that_limits_nodes() -> None:
    personal = with_cml(ready(), license=PERSONAL)
    demand = replace(DEMAND, license_affinity=())
    assert claimed(with_foreign(personal, nodes=16), demand).claims != ()
    with pytest.raises(PlacementRefused) as refused:
        claimed(with_foreign(personal, nodes=17), demand)
    assert refused.value.label is Label.LICENSE
