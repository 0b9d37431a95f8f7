"""What is held for whom, what comes in time, what can never be, and what a decision says and records."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import Reserve
from lcm.domain.lablet.decision import Decision, Outcome, Plan, is_changed, record_of
from lcm.domain.lablet.definition import Demand, LicenseTier
from lcm.domain.lablet.filters import DEFINITIONS_UNKNOWN, Label
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.ports import PortKind, PortRange, PortSpec
from lcm.domain.lablet.session import Batch, LabletSession, Nomination, Placement, WaitCode
from lcm.domain.lablet.session_changes import is_missed
from lcm.domain.lablet.snapshot import Growth, PlacementTemplate, PlacementWorker, Snapshot
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import DEFAULTS, Timeslot
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus
from support.lablets import GROWTH, LARGE, METAL, NOON, at, claim, session, size, worker


def snapshot(*parts: PlacementWorker | LabletSession, **changes: object) -> Snapshot:
    workers = tuple(part for part in parts if isinstance(part, PlacementWorker))
    sessions = tuple(part for part in parts if isinstance(part, LabletSession))
    return replace(Snapshot(workers=workers, sessions=sessions), **changes)


def plan(*parts: PlacementWorker | LabletSession, **changes: object) -> Plan:
    return PlacementEngine.plan(snapshot(*parts, **changes), NOON)


def decide(wanted: LabletSession, *parts: PlacementWorker | LabletSession, **changes: object) -> Decision:
    return PlacementEngine.decide(snapshot(*parts, **changes), wanted, NOON)


def subs(decision: Decision) -> list[str]:
    assert decision.explanation is not None
    return [rejection.sub for rejection in decision.explanation.rejections]


def ports(*fixed: int | None) -> tuple[PortSpec, ...]:
    return tuple(
        PortSpec(name=f"p{number}", node="r", kind=PortKind.SERIAL, protocol="serial", fixed=port)
        for number, port in enumerate(fixed)
    )


def slot(start: float, end: float = 120) -> Timeslot:
    return Timeslot(start=at(start), end=at(end))


STARTING = WorkerStatus.STARTING


# Before anything is taken for it.


def test_a_session_that_takes_the_last_room_is_not_told_that_there_is_none() -> None:
    made = decide(session(cpu=8), worker())
    assert (made.outcome, subs(made)) == (Outcome.ASSIGN, [])


# Nominations.


def test_room_for_an_earlier_session_is_held_against_later_ones_as_far_as_it_reaches() -> None:
    coming = worker(status=STARTING, ready_at=at(5))
    made = plan(coming, session("a", 6, 0), session("b", 4, 1), session("c", 2, 2))
    codes = [made.decisions[name].code for name in "abc"]
    assert codes == [WaitCode.WAITS_FOR_WORKER, WaitCode.NO_ROOM, WaitCode.WAITS_FOR_WORKER]


def test_the_session_that_holds_the_room_is_named() -> None:
    view = worker(claims=(claim(6, ends_at=NOON),))
    made = decide(session("b", 2, 1), view, session("a", 8, 0))
    assert subs(made) == ["held_for:a"] * 2


def test_a_nomination_is_not_held_against_its_own_session_nor_against_earlier_ones() -> None:
    nominated = Nomination(worker_id="w1", ready_at=at(5))
    coming = worker(status=STARTING, ready_at=at(5))
    later = session("b", 8, 1, nominated=nominated)
    assert plan(coming, later).decisions["b"].nomination == nominated
    made = plan(coming, later, session("a", 8, 0))
    assert made.decisions["a"].nomination == nominated
    assert made.decisions["b"].nomination is None
    ready = plan(worker(), later, session("a", 8, 0))
    assert ready.decisions["a"].outcome is Outcome.ASSIGN


@pytest.mark.parametrize("lost", [WorkerStatus.FAILED, WorkerStatus.TERMINATED, WorkerStatus.DRAINING, None])
def test_a_nomination_is_dropped_when_its_worker_fails_or_leaves(lost: WorkerStatus | None) -> None:
    waiting = session(nominated=Nomination(worker_id="w1", ready_at=at(5)))
    views = [worker(status=lost)] if lost else []
    made = plan(*views, waiting, templates=(LARGE,), growth=GROWTH).decisions["s"]
    assert (made.nomination, made.outcome) == (None, Outcome.SCALE_UP)


def test_a_session_that_pauses_after_a_failure_keeps_the_worker_that_comes_for_it() -> None:
    nominated = Nomination(worker_id="w1", ready_at=at(5))
    pausing = session("a", 8, 0, nominated=nominated, next_try_at=at(0.5))
    coming = worker(status=STARTING, ready_at=at(5))
    made = plan(coming, pausing, session("b", 8, 1))
    assert (made.decisions["a"].code, made.decisions["a"].nomination) == (WaitCode.BACKOFF, nominated)
    assert made.decisions["b"].code is WaitCode.NO_ROOM
    assert plan(pausing, session("b", 8, 1)).decisions["a"].nomination is None


def test_a_session_that_pauses_after_a_failure_keeps_room_that_frees_for_it() -> None:
    nominated = Nomination(worker_id="w1", ready_at=at(12))
    pausing = session("a", 8, 0, nominated=nominated, next_try_at=at(0.5))
    view = worker(claims=(claim(8, ends_at=at(2)),))
    made = plan(view, pausing, session("b", 8, 1))
    assert made.decisions["a"].nomination == nominated
    assert made.decisions["b"].nomination is None


def test_the_estimate_for_a_worker_without_a_time_does_not_move_with_the_clock() -> None:
    coming = worker(status=STARTING)
    waiting = session(nominated=Nomination(worker_id="w1", ready_at=at(3)))
    nomination = plan(coming, waiting).decisions["s"].nomination
    assert nomination == waiting.nominated


def test_ports_of_a_claim_that_ends_are_free_for_the_session_that_takes_over() -> None:
    ending = replace(claim(8, ends_at=at(0)), ports={"p0": 2000})
    waiting = session(demand=Demand(needs=size(8), ports=ports(2000)))
    made = plan(worker(claims=(ending,)), waiting, replace(waiting, id="t", created_at=NOON))
    assert made.decisions["s"].code is WaitCode.WAITS_FOR_RELEASE
    assert made.decisions["t"].code is WaitCode.NO_ROOM


# In time.


@pytest.mark.parametrize(("ready", "is_used"), [(24.9, True), (25, False)])
def test_a_worker_that_comes_up_counts_only_if_it_is_ready_before_the_latest_start(
    ready: float, is_used: bool
) -> None:
    booked = session(timeslot=slot(0))
    made = plan(worker(status=STARTING, ready_at=at(ready)), booked).decisions["s"]
    assert (made.nomination is not None) == is_used
    later = replace(booked, nominated=made.nomination)
    assert is_missed(later, now=at(6)) is not is_used


def test_a_worker_that_comes_in_time_is_preferred_to_a_fuller_one_that_is_late() -> None:
    late = worker("a", status=STARTING, ready_at=at(60), claims=(claim(4),))
    good = worker("b", status=STARTING, ready_at=at(5))
    made = plan(late, good, session("x", timeslot=slot(0)), session("y"))
    nominated = [made.decisions[name].nomination for name in "xy"]
    assert [each and each.worker_id for each in nominated] == ["b", "a"]


def test_nothing_is_started_or_launched_for_a_session_that_it_would_miss() -> None:
    booked = session(timeslot=slot(-22))
    made = plan(worker(status=WorkerStatus.STOPPED), booked, templates=(LARGE,), growth=GROWTH)
    assert (made.steps, made.launches) == ((), ())
    assert made.decisions["s"].code is WaitCode.NO_ROOM
    assert made.decisions["s"].text == (
        "No worker has room, and a new one, which takes 25 minutes, would come too late."
    )


def test_no_worker_is_launched_of_a_template_that_takes_too_long_and_a_quicker_one_is() -> None:
    slow = replace(LARGE, boot=timedelta(minutes=40))
    booked = session(timeslot=slot(10))
    made = plan(booked, templates=(slow,), growth=GROWTH)
    assert (made.launches, made.decisions["s"].code) == ((), WaitCode.NO_ROOM)
    made = plan(booked, session("soon"), templates=(slow, METAL), growth=GROWTH)
    assert [(each.template, each.seats) for each in made.launches] == [("metal", (("soon", "s"),))]
    assert plan(session("soon"), templates=(slow, METAL), growth=GROWTH).launches[0].template == "large"


def test_a_lab_that_takes_longer_needs_room_sooner_and_no_worker_sooner() -> None:
    ending = worker(claims=(claim(8, ends_at=at(45)),))
    booked = session(timeslot=slot(60))
    waits = plan(ending, booked, templates=(LARGE,), growth=GROWTH)
    assert waits.decisions["s"].code is WaitCode.WAITS_FOR_RELEASE
    longer = replace(booked, lab_lead=timedelta(minutes=20))
    assert plan(ending, longer, templates=(LARGE,), growth=GROWTH).launches[0].seats == (("s",),)
    assert longer.latest_arrival(DEFAULTS) == booked.latest_arrival(DEFAULTS) == at(85)


# Never.


def template(**changes: object) -> PlacementTemplate:
    return replace(METAL, **changes)


PERSONAL, ENTERPRISE = LicenseTier.PERSONAL, LicenseTier.ENTERPRISE


@pytest.mark.parametrize(
    ("demand", "offered", "text"),
    [
        (Demand(needs=size(500)), template(), "large enough for 500 CPUs"),
        (Demand(needs=size(1), ports=ports(*[None] * 11)), template(), "needs 11 ports"),
        (Demand(needs=size(1), ports=ports(9000)), template(), "requires port 9000"),
        (Demand(needs=size(1), ports=ports(2001, 2001)), template(), "the same port twice"),
        (Demand(needs=size(1), license_affinity=(ENTERPRISE,)), template(license=PERSONAL), "license"),
        (Demand(needs=Capacity(nodes=21)), template(license=PERSONAL), "large enough"),
        (Demand(needs=size(1), cml_version_min="2.10"), template(cml_version="2.9"), "software"),
        (
            Demand(needs=size(1), needs_nested_virtualization=True),
            template(has_nested_virtualization=False),
            "software",
        ),
        (Demand(needs=size(1), region="there"), template(), "region there"),
        (Demand(needs=size(1)), template(is_enabled=False), "no worker"),
    ],
)
def test_what_no_worker_and_no_template_can_ever_carry_is_impossible(
    demand: Demand, offered: PlacementTemplate, text: str
) -> None:
    made = decide(
        session(demand=demand),
        templates=(offered,),
        growth=GROWTH,
        ports=PortRange(first=2000, last=2009),
    )
    assert (made.outcome, made.code) == (Outcome.IMPOSSIBLE, WaitCode.NO_WORKER_FITS)
    assert text in made.text


def test_what_is_not_known_of_a_template_or_a_worker_is_possible() -> None:
    demand = Demand(
        needs=size(1),
        license_affinity=(ENTERPRISE,),
        cml_version_min="2.10",
        needs_nested_virtualization=True,
        ports=ports(None),
    )
    assert decide(session(demand=demand), templates=(METAL,), growth=GROWTH).outcome is Outcome.SCALE_UP
    unlicensed = worker(is_licensed=False)
    assert decide(session(demand=demand), unlicensed).code is WaitCode.NO_ROOM
    assert decide(session(cpu=500), worker(declared=None)).code is WaitCode.NO_ROOM


def test_a_worker_that_is_terminated_makes_nothing_possible() -> None:
    leaving = worker(status=WorkerStatus.TERMINATING)
    unwanted = worker("w2", desired_status=DesiredStatus.TERMINATED)
    assert decide(session(), leaving, unwanted).outcome is Outcome.IMPOSSIBLE


def test_workers_are_launched_from_templates_that_carry_the_sessions() -> None:
    free = template(name="free", license=PERSONAL, usd_per_hour=0.1)
    paid = template(name="paid", license=ENTERPRISE)
    wants_paid = session("a", demand=Demand(needs=size(1), license_affinity=(ENTERPRISE,)))
    made = plan(wants_paid, session("b"), templates=(free, paid), growth=GROWTH)
    assert [(each.template, each.seats) for each in made.launches] == [("paid", (("b", "a"),))]
    assert [each.template for each in plan(session(), templates=(free, paid), growth=GROWTH).launches] == [
        "free"
    ]


def test_a_launch_counts_nodes_of_a_personal_license_and_ports_of_a_worker() -> None:
    ten_nodes = Demand(needs=Capacity(cpu=1, nodes=10))
    sessions = [session(f"s{number}", demand=ten_nodes) for number in range(4)]
    free = template(license=PERSONAL)
    assert plan(*sessions, templates=(free,), growth=GROWTH).launches[0].count == 2
    fixed = [session(f"s{number}", demand=Demand(needs=size(1), ports=ports(2000))) for number in range(3)]
    assert plan(*fixed, templates=(METAL,), growth=GROWTH).launches[0].count == 3
    two = [session(f"s{n}", demand=Demand(needs=size(1), ports=ports(None, None))) for n in range(4)]
    narrow = PortRange(first=2000, last=2003)
    assert plan(*two, templates=(METAL,), growth=GROWTH, ports=narrow).launches[0].count == 2


def test_a_session_without_a_region_is_launched_where_the_fleet_may_grow() -> None:
    growth = {"a": Growth(count=0), "b": Growth(count=1)}
    assert [each.region for each in plan(session(), templates=(METAL,), growth=growth).launches] == ["b"]


def seat(number: int, cpu: float = 2) -> LabletSession:
    return session(f"s{number}", cpu, batch=Batch(id="class", index=number, is_all_or_nothing=True))


def test_an_impossible_member_of_a_gang_is_impossible_and_holds_the_others_back_by_name() -> None:
    made = plan(worker(), seat(0), seat(1, 500), seat(2)).decisions
    assert made["s1"].outcome is Outcome.IMPOSSIBLE
    for name in ("s0", "s2"):
        assert (made[name].outcome, made[name].code) == (Outcome.WAIT, WaitCode.HELD_BACK_BY_GANG)
        assert "seat 2 can never be placed: no worker" in made[name].text


def test_a_gang_that_waits_says_which_seat_has_no_place_and_why() -> None:
    made = plan(worker(), *(seat(number, 4) for number in range(4))).decisions
    assert made["s0"].text == (
        "Its class starts as a whole, and seat 3, like 1 other, has no place:"
        " waits for room, because no worker has enough."
    )


def test_a_gang_of_which_a_window_is_not_open_is_not_placed_in_part() -> None:
    early = replace(seat(1), status=SessionStatus.PENDING)
    made = plan(worker(), seat(0), early).decisions
    assert (made["s0"].code, made["s1"].code) == (WaitCode.HELD_BACK_BY_GANG, WaitCode.WINDOW_NOT_OPEN)


def test_room_that_one_incomplete_gang_gives_back_completes_the_next() -> None:
    second = [
        replace(
            seat(number, 4), id=f"t{number}", batch=Batch(id="next", index=number, is_all_or_nothing=True)
        )
        for number in range(2)
    ]
    made = plan(worker(), *(seat(number, 4) for number in range(3)), *second).decisions
    assert {made[each.id].outcome for each in second} == {Outcome.ASSIGN}


# Filters.


@pytest.mark.parametrize(
    ("changes", "sub"),
    [
        ({"is_ready": False}, "not_ready"),
        ({"status": WorkerStatus.UNKNOWN}, "not_ready"),
        ({"status": WorkerStatus.FAILED}, "not_ready"),
        ({"status": WorkerStatus.PENDING}, "starting"),
        ({"status": WorkerStatus.PROVISIONING}, "starting"),
        ({"status": WorkerStatus.STARTING}, "starting"),
        ({"status": WorkerStatus.DRAINING}, "draining"),
        ({"status": WorkerStatus.DRAINING, "is_drained_by_scale_down": True}, "draining"),
        ({"status": WorkerStatus.STOPPED}, "worker_stopped"),
        ({"status": WorkerStatus.STOPPING}, "worker_stopped"),
        ({"desired_status": DesiredStatus.STOPPED}, "worker_stopped"),
        ({"region": "there"}, "wrong_region"),
        ({"quarantined": {"lab": at(1)}}, "quarantined"),
    ],
)
def test_a_worker_that_is_not_eligible_is_rejected_by_its_code(changes: dict[str, object], sub: str) -> None:
    wanted = session(demand=Demand(needs=size(2), region="here"), lab_yaml_hash="lab")
    made = decide(wanted, replace(worker(), **changes), templates=(METAL,), growth=GROWTH)
    assert subs(made) == [sub]
    assert made.outcome is not Outcome.ASSIGN


def test_a_quarantine_ends_at_its_time_and_is_of_one_lab_only() -> None:
    wanted = session(lab_yaml_hash="lab")
    assert decide(wanted, worker(quarantined={"lab": NOON, "other": at(9)})).outcome is Outcome.ASSIGN


def test_capacity_is_said_as_free_allocatable_and_declared() -> None:
    view = worker(reserve=Reserve(memory_gb=4, cpu_overcommit=2), claims=(claim(3),))
    made = decide(session(cpu=2), view)
    assert made.explanation is not None
    (found,) = made.explanation.rejections
    assert (found.label, found.sub) == (Label.CAPACITY, "memory")
    assert (found.need, found.have) == ("2 GB", "1 free of 4 allocatable, 8 declared")
    assert made.explanation.counts == {**dict.fromkeys(Label, 0), Label.CAPACITY: 1}


def test_a_worker_whose_definitions_are_unknown_takes_the_session_with_a_warning() -> None:
    demand = Demand(needs=size(1), node_definitions=("xr",))
    assert decide(session(demand=demand), worker()).warnings == (DEFINITIONS_UNKNOWN,)
    known = worker(node_definitions=frozenset({"xr"}))
    assert decide(session(demand=demand), known).warnings == ()


# Last choices.


def test_a_worker_of_last_choice_is_taken_if_no_other_has_room_and_the_text_says_why() -> None:
    overloaded = worker(is_overloaded=True)
    assert decide(session(), overloaded).text == (
        "Goes to worker w1, which is overloaded, because no other has room."
    )
    failed = session(avoided_workers={"w1": at(1)})
    assert "which failed it before" in decide(failed, worker()).text
    made = decide(session(), overloaded, worker("w2"))
    assert made.text == "Goes to worker w2."
    assert made.explanation is not None
    assert [(c.worker_id, c.is_last_choice) for c in made.explanation.candidates] == [
        ("w2", False),
        ("w1", True),
    ]


# Records.


def test_a_decision_is_recorded_with_the_best_five_candidates() -> None:
    views = [worker(f"w{number}", claims=(claim(number),)) for number in range(7)]
    made = decide(session(), *views, revision="r7")
    record = record_of(made, at=NOON, revision="r7", milliseconds=1.5)
    assert [each.worker_id for each in record.candidates] == ["w6", "w5", "w4", "w3", "w2"]
    assert (record.worker_id, record.score) == ("w6", record.candidates[0].score)
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_a_decision_is_changed_when_its_outcome_code_or_worker_changes_and_not_in_each_cycle() -> None:
    waiting = decide(session(), worker(status=STARTING, ready_at=at(5)))
    before = record_of(waiting, at=NOON, revision="", milliseconds=0)
    assert is_changed(None, waiting)
    moved = Nomination(worker_id="w1", ready_at=NOON + timedelta(minutes=9))
    assert not is_changed(before, replace(waiting, text="other", position=9, nomination=moved))
    assert is_changed(before, replace(waiting, code=WaitCode.NO_ROOM))
    assert is_changed(before, replace(waiting, nomination=replace(moved, worker_id="w2")))
    assert is_changed(before, decide(session(), worker()))


def test_a_snapshot_survives_its_way_as_json() -> None:
    whole = snapshot(
        worker(
            claims=(claim(1, ends_at=at(1)),), quarantined={"lab": at(1)}, foreign_ports=frozenset({2000})
        ),
        session(timeslot=slot(0), avoided_workers={"w1": at(1)}),
        templates=(METAL,),
        growth=GROWTH,
        revision="7",
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Snapshot) == whole


def test_a_session_whose_claim_was_not_confirmed_goes_where_it_has_room_reserved() -> None:
    """Its own claim fills the worker; nothing else is looked for, and nothing is launched."""
    begun = session(cpu=8, attempt=1, placement=Placement(worker_id="w1", attempt=1, at=NOON, epoch=1))
    own = replace(claim(8), session_id=begun.id)
    decided = plan(begun, worker(claims=(own,)), worker("w2"), templates=(LARGE,), growth=GROWTH)
    assert (decided.decisions["s"].outcome, decided.decisions["s"].worker_id) == (Outcome.ASSIGN, "w1")
    assert decided.launches == ()
    older = replace(own, attempt=0)
    assert decide(begun, worker(claims=(older,)), worker("w2")).worker_id == "w2"
