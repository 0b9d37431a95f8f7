"""Who owns an instance: tag, record and token together; and how much may be done about orphans."""

import pytest
from msgspec.structs import replace

from lcm.domain.launch import InstanceId, LaunchIntent, WorkerId, client_token
from lcm.domain.lifecycle import (
    DRAINING,
    FAILED,
    PENDING,
    PROVISIONING,
    RUNNING,
    STOPPED,
    TERMINATED,
    UNKNOWN,
    WorkerStatus,
)
from lcm.domain.orphans import (
    AbsenceTracker,
    Budget,
    Orphan,
    OrphanKind,
    find_orphans,
    may_have_lost_instance,
    reason_for_dry_run,
)
from lcm.domain.worker import Instance, Worker
from support.core import NOON, SPEC, a_worker, an_instance, with_fields

TOKEN = client_token(WorkerId("w-1"), 1)


def a_tagged_instance(token: str | None = TOKEN, **tags: str) -> Instance:
    ours = {"lcm:managed_by": "lablet-cloud-manager", "cml-environment": "production", "worker_id": "w-1"}
    return replace(
        an_instance(),
        id=InstanceId("i-orphan"),
        client_token=token,
        tags={**ours, **{k.replace("_", "-"): v for k, v in tags.items() if k != "worker_id"}},
    )


def with_launch_intent() -> Worker:
    intent = LaunchIntent(generation=1, client_token=TOKEN, spec=SPEC, requested_at=NOON)
    return a_worker(launch_intent=intent, launch_generation=1)


def launched(status: WorkerStatus = RUNNING, generations: int = 2) -> Worker:
    return a_worker(status=status, ec2_instance_id=InstanceId("i-mine"), launch_generation=generations)


@pytest.mark.parametrize(
    ("instance", "workers", "kind"),
    [
        (a_tagged_instance(), [with_launch_intent()], OrphanKind.INTENDED),
        (a_tagged_instance(), [launched()], OrphanKind.SUPERSEDED),
        (a_tagged_instance(), [launched(TERMINATED)], OrphanKind.RECORD_TERMINATED),
        (a_tagged_instance(), [], OrphanKind.NO_RECORD),
        # E13: a tag that was copied to an instance that no launch of ours created.
        (a_tagged_instance(token="somebody-elses"), [launched()], OrphanKind.CONFLICT),
        (a_tagged_instance(token=None), [launched()], OrphanKind.CONFLICT),
        (a_tagged_instance(token="somebody-elses"), [], OrphanKind.CONFLICT),
        # A token of a launch that was never intended.
        (a_tagged_instance(token=client_token(WorkerId("w-1"), 3)), [launched()], OrphanKind.CONFLICT),
        # Another fleet's, and one that was imported once.
        (a_tagged_instance(cml_environment="staging"), [], OrphanKind.CONFLICT),
        (
            a_tagged_instance(),
            [with_fields(launched(TERMINATED), imported=True, ec2_instance_id=InstanceId("i-orphan"))],
            OrphanKind.CONFLICT,
        ),
    ],
)
def test_an_orphan_is_recognised_by_tag_record_and_token(
    instance: Instance, workers: list[Worker], kind: OrphanKind
) -> None:
    [orphan] = find_orphans([instance], workers, "production").values()
    assert orphan.kind is kind
    assert orphan.detail


@pytest.mark.parametrize(
    "instance",
    [
        replace(a_tagged_instance(), id=InstanceId("i-mine")),
        replace(a_tagged_instance(), state="terminated"),
        replace(a_tagged_instance(), state="shutting-down"),
        replace(a_tagged_instance(), tags={"worker_id": "w-1"}),
        replace(a_tagged_instance(), tags={**a_tagged_instance().tags, "lcm:managed_by": "somebody else"}),
    ],
    ids=["owned", "terminated", "going", "not ours", "another manager's"],
)
def test_these_are_no_orphans(instance: Instance) -> None:
    assert find_orphans([instance], [launched()], "production") == {}


@pytest.mark.parametrize(
    ("status", "imported", "expected"),
    [
        (PENDING, False, False),
        (PROVISIONING, False, False),
        (TERMINATED, False, False),
        (RUNNING, False, False),
        (RUNNING, True, True),
        (STOPPED, False, True),
        (FAILED, False, True),
        (DRAINING, False, True),
        (UNKNOWN, False, True),
    ],
)
def test_a_record_is_swept_unless_its_own_step_handles_it(
    status: WorkerStatus, imported: bool, expected: bool
) -> None:
    worker = replace(launched(status), imported=imported)
    assert may_have_lost_instance(worker) is expected


def test_a_record_without_an_instance_has_lost_none() -> None:
    assert not may_have_lost_instance(a_worker(status=STOPPED))


def orphans(kind: OrphanKind = OrphanKind.NO_RECORD) -> dict[InstanceId, Orphan]:
    return {InstanceId("i-orphan"): Orphan(a_tagged_instance(), kind, WorkerId("w-1"), "")}


class TestSightings:
    def test_ten_minutes_between_two_complete_lists_are_enough(self) -> None:
        seen = AbsenceTracker()
        seen.record(orphans(), 0)
        assert not seen.is_confirmed(InstanceId("i-orphan"), 599)
        assert seen.is_confirmed(InstanceId("i-orphan"), 600)

    def test_one_list_without_it_starts_anew(self) -> None:
        seen = AbsenceTracker()
        seen.record(orphans(), 0)
        seen.record({}, 300)
        seen.record(orphans(), 600)
        assert not seen.is_confirmed(InstanceId("i-orphan"), 600)

    def test_another_reason_starts_anew(self) -> None:
        seen = AbsenceTracker()
        seen.record(orphans(OrphanKind.INTENDED), 0)
        seen.record(orphans(OrphanKind.SUPERSEDED), 600)
        assert not seen.is_confirmed(InstanceId("i-orphan"), 600)


class TestBudget:
    @pytest.mark.parametrize(("fleet", "allowed"), [(0, 1), (5, 1), (19, 1), (20, 2), (100, 10)])
    def test_a_tenth_of_the_fleet_and_at_least_one(self, fleet: int, allowed: int) -> None:
        budget = Budget()
        spent = 0
        while budget.allows(fleet, 0):
            budget.spend(0)
            spent += 1
        assert spent == allowed

    def test_what_was_spent_comes_back_after_ten_minutes(self) -> None:
        budget = Budget()
        budget.spend(0)
        assert not budget.allows(5, 599)
        assert budget.allows(5, 600)


def only_look(**changes: object) -> str | None:
    facts: dict[str, object] = {
        "freeze_reasons": [],
        "seconds_since_start": 601.0,
        "expected": 3,
        "listed": 3,
        **changes,
    }
    return reason_for_dry_run(**facts)  # type: ignore[arg-type]


def test_with_every_authority_there_something_may_be_done() -> None:
    assert only_look() is None
    assert only_look(expected=0, listed=0) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"freeze_reasons": ["EC2 us-east-1: ExpiredToken"]}, "ExpiredToken"),
        ({"seconds_since_start": 599.0}, "less than 10 minutes"),
        ({"listed": 0}, "lists no instance"),
    ],
)
def test_h8_nothing_is_done_without_every_authority(changes: dict[str, object], why: str) -> None:
    assert why in str(only_look(**changes))
