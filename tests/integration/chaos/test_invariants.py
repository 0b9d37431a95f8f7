"""The rules that end every test here notice what they are for."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.domain.launch import MANAGED_BY, MANAGED_BY_TAG, WORKER_ID_TAG, InstanceId, WorkerId
from lcm.domain.lifecycle import (
    PENDING,
    PROVISIONING,
    RUNNING,
    STARTING,
    STOPPED,
    TERMINATED,
    DesiredStatus,
    WorkerStatus,
)
from lcm.domain.worker import Cml, HistoryEntry, Launches, Worker, WorkerInstance
from lcm.simulator.listing import ListedInstance
from support.chaos import Acknowledged, EndState, Witness
from support.core import with_fields

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def history(*statuses: WorkerStatus) -> tuple[HistoryEntry, ...]:
    steps = zip((None, *statuses), statuses, strict=False)
    return tuple(HistoryEntry(source=s, target=t, by="", reason="", at=NOW) for s, t in steps)


WORKER = Worker(
    id=WorkerId("w"),
    name="lab",
    template_name="small",
    aws_region="us-east-1",
    created_at=NOW,
    created_by="somebody",
    updated_at=NOW,
    status=RUNNING,
    form=2,
    cml=Cml(is_ready=True),
    launch=Launches(generation=1),
    instance=WorkerInstance(id=InstanceId("i-1")),
    state_history=history(PENDING, PROVISIONING, STARTING, RUNNING),
)
INSTANCE = ListedInstance(
    id="i-1",
    region="us-east-1",
    state="running",
    private_ip="10.0.0.1",
    public_ip=None,
    image_name="CML",
    image_id="ami-1",
    instance_type="t3.small",
    tags={WORKER_ID_TAG: "w", MANAGED_BY_TAG: MANAGED_BY},
    running_since=None,
    generation=1,
)
TWIN = replace(INSTANCE, id="i-2")
STRANGER = replace(INSTANCE, id="i-3", tags={})
WISHES = {"w": Acknowledged(1, DesiredStatus.RUNNING)}


def test_a_good_end_breaks_no_rule() -> None:
    state = EndState([WORKER], [INSTANCE, STRANGER], WISHES)
    assert state.is_at_rest
    assert state.broken_rules() == []


def test_who_has_not_noticed_yet_is_not_at_rest() -> None:
    assert not EndState([WORKER], [replace(INSTANCE, state="stopped")], WISHES).is_at_rest


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ("i1", EndState([with_fields(WORKER, launch_generation=2)], [INSTANCE, TWIN], WISHES)),
        ("i2", EndState([], [INSTANCE], {})),
        ("i2", EndState([with_fields(WORKER, ec2_instance_id=None)], [INSTANCE], WISHES)),
        ("i2", EndState([WORKER], [], WISHES)),
        ("i2", EndState([WORKER], [replace(INSTANCE, state="stopped")], WISHES)),
        ("i2", EndState([replace(WORKER, status=TERMINATED)], [INSTANCE], {})),
        ("i4", EndState([WORKER], [INSTANCE, replace(TWIN, state="terminated")], WISHES)),
        ("i5", EndState([replace(WORKER, state_history=history(PENDING, RUNNING))], [INSTANCE], WISHES)),
        ("i5", EndState([replace(WORKER, state_history=history(PENDING))], [INSTANCE], WISHES)),
        ("i11", EndState([WORKER], [INSTANCE], {**WISHES, "lost": Acknowledged(1, DesiredStatus.RUNNING)})),
        ("i11", EndState([WORKER], [INSTANCE], {"w": Acknowledged(2, DesiredStatus.RUNNING)})),
        ("i11", EndState([WORKER], [INSTANCE], {"w": Acknowledged(1, DesiredStatus.STOPPED)})),
    ],
)
def test_a_bad_end_breaks_its_rule(rule: str, state: EndState) -> None:
    assert any(broken.startswith(f"{rule}_") for broken in state.broken_rules()), state.broken_rules()


def told(
    version: int, *, was: WorkerStatus | None = None, generation: int = 1, **more: Any
) -> dict[str, Any]:
    worker = {"id": "w", "name": "lab", "version": version, "status": "pending", "generation": generation}
    return {"worker": worker, "previous_status": was and was.value, **more}


def snapshot(version: int) -> dict[str, Any]:
    return {"worker": told(version)["worker"]}


@pytest.mark.parametrize(
    ("events", "objections"),
    [
        ([told(1), told(2), told(3)], 0),
        ([snapshot(4), told(4), told(5), snapshot(7), told(8)], 0),
        ([told(1), told(3)], 1),
        ([told(2), snapshot(1)], 2),
        ([told(1), told(2, was=STOPPED)], 0),
        ([told(1), told(2, was=TERMINATED)], 1),
        ([told(1, generation=2), told(2)], 1),
    ],
)
def test_the_witness_objects_to_gaps_to_going_back_and_to_impossible_steps(
    events: list[dict[str, Any]], objections: int
) -> None:
    witness = Witness()
    for event in events:
        witness.hear(event)
    assert len(witness.objections) == objections, witness.objections
