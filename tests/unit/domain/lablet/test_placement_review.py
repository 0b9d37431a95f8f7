"""Explanations name exactly the workers that could take a session, and prospects are taken soonest first."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.decision import Decision, Outcome
from lcm.domain.lablet.definition import Demand, LicenseTier
from lcm.domain.lablet.filters import Label
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.ports import PortKind, PortRange, PortSpec
from lcm.domain.lablet.session import Batch, LabletSession, Nomination, WaitCode
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import WorkerStatus
from support.lablets import GROWTH, METAL, NOON, at, claim, session, size, worker

PERSONAL = LicenseTier.PERSONAL


def decide(
    wanted: LabletSession, *parts: PlacementWorker | LabletSession, growth: int = 0, **changes: object
) -> Decision:
    snapshot = Snapshot(
        workers=tuple(part for part in parts if isinstance(part, PlacementWorker)),
        sessions=tuple(part for part in parts if isinstance(part, LabletSession)),
        templates=(METAL,),
        growth={"here": Growth(count=growth)},
    )
    return PlacementEngine.decide(replace(snapshot, **changes), wanted, NOON)


def nodes(count: int) -> Demand:
    return Demand(needs=Capacity(cpu=1, nodes=count))


def test_nodes_of_a_personal_license_that_are_held_for_another_session_are_named() -> None:
    view = worker(license=PERSONAL, claims=(replace(claim(8, ends_at=NOON), needs=Capacity(cpu=8)),))
    first = session("a", minute=0, demand=Demand(needs=Capacity(cpu=1, nodes=20)))
    made = decide(session("b", minute=1, demand=nodes(1)), view, first)
    assert made.explanation is not None
    found = {each.sub for each in made.explanation.rejections if each.label is Label.LICENSE}
    assert found == {"nodes_over_20"}


ports = st.sampled_from(
    [
        (),
        (PortSpec(name="p", node="r", kind=PortKind.SERIAL, protocol="serial"),),
        (PortSpec(name="p", node="r", kind=PortKind.SERIAL, protocol="serial", fixed=2001),),
    ]
)
tiers = st.sampled_from([None, *LicenseTier])
wants = st.builds(
    Demand,
    needs=st.builds(Capacity, cpu=st.integers(1, 6), memory_gb=st.integers(0, 6), nodes=st.integers(1, 12)),
    ports=ports,
    license_affinity=st.sampled_from([(), (PERSONAL,), (LicenseTier.ENTERPRISE,)]),
)
rich_sessions = st.lists(st.tuples(wants, st.integers(0, 3)), min_size=1, max_size=7).map(
    lambda rows: [session(f"s{n}", minute=minute, demand=want) for n, (want, minute) in enumerate(rows)]
)
rich_workers = st.lists(
    st.tuples(
        st.sampled_from([WorkerStatus.RUNNING, WorkerStatus.RUNNING, WorkerStatus.STARTING]),
        tiers,
        st.integers(2, 10),
        st.lists(
            st.tuples(st.integers(1, 5), st.integers(1, 12), st.none() | st.integers(1, 20)), max_size=3
        ),
        st.booleans(),
    ),
    max_size=4,
).map(
    lambda rows: [
        worker(
            f"w{number}",
            cpu,
            status=status,
            license=tier,
            has_patty=has_patty,
            claims=tuple(
                replace(
                    claim(1, number=index, ends_at=None if end is None else at(end)),
                    needs=Capacity(cpu=used, memory_gb=used, nodes=count),
                    ports={"p": 2000},
                )
                for index, (used, count, end) in enumerate(claims)
            ),
        )
        for number, (status, tier, cpu, claims, has_patty) in enumerate(rows)
    ]
)


@settings(max_examples=200)
@given(rich_workers, rich_sessions)
def test_exactly_the_workers_without_a_reason_are_candidates(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    snapshot = Snapshot(
        workers=tuple(workers),
        sessions=tuple(sessions),
        templates=(METAL,),
        growth=GROWTH,
        ports=PortRange(first=2000, last=2002),
    )
    made = PlacementEngine.plan(snapshot, NOON, [each.id for each in sessions])
    for each in sessions:
        decision = made.decisions[each.id]
        assert decision.explanation is not None
        refusing = {found.worker_id for found in decision.explanation.rejections}
        candidates = {found.worker_id for found in decision.explanation.candidates}
        assert candidates == {view.id for view in workers} - refusing
        assert (decision.outcome is Outcome.ASSIGN) == bool(candidates)


few_wants = st.lists(wants, min_size=1, max_size=2, unique=True)


@settings(max_examples=100)
@given(rich_workers, few_wants.flatmap(lambda few: st.lists(st.sampled_from(few), max_size=8)), st.data())
def test_explaining_many_sessions_says_of_each_what_explaining_it_alone_says(
    workers: list[PlacementWorker], demands: list[Demand], data: st.DataObject
) -> None:
    sessions = [
        session(f"s{number}", demand=demand, lab_yaml_hash=data.draw(st.sampled_from(["", "refused"])))
        for number, demand in enumerate(demands)
    ]
    quarantined = [replace(view, quarantined={"refused": at(5)}) for view in workers[:1]]
    snapshot = Snapshot(
        workers=(*quarantined, *workers[1:]),
        sessions=tuple(sessions),
        templates=(METAL,),
        growth=GROWTH,
        ports=PortRange(first=2000, last=2002),
    )
    together = PlacementEngine.plan(snapshot, NOON, [each.id for each in sessions]).decisions
    for each in sessions:
        assert together[each.id] == PlacementEngine.plan(snapshot, NOON, [each.id]).decisions[each.id]


@settings(max_examples=60)
@given(rich_workers, rich_sessions, st.integers(0, 2), st.booleans())
def test_an_explanation_is_what_the_plan_does_whatever_licenses_ports_classes_and_ends_there_are(
    workers: list[PlacementWorker], sessions: list[LabletSession], growth: int, is_class: bool
) -> None:
    if is_class:
        sessions = [
            replace(each, batch=Batch(id="b", index=index, size=len(sessions), is_all_or_nothing=True))
            for index, each in enumerate(sessions)
        ]
    snapshot = Snapshot(
        workers=tuple(workers),
        sessions=tuple(sessions),
        templates=(METAL,),
        growth={"here": Growth(count=growth)},
        ports=PortRange(first=2000, last=2002),
    )
    made = PlacementEngine.plan(snapshot, NOON)
    for each in sessions:
        alone = PlacementEngine.decide(snapshot, each, NOON)
        assert replace(alone, explanation=None) == made.decisions[each.id]


def ends(minutes: float) -> PlacementWorker:
    return worker("full", claims=(claim(8, ends_at=at(minutes - 10)),))


@pytest.mark.parametrize(
    ("other", "waits_for"),
    [
        (worker("other", status=WorkerStatus.STARTING, ready_at=at(2)), "other"),
        (worker("other", status=WorkerStatus.STARTING, ready_at=at(24)), "full"),
        (worker("other", status=WorkerStatus.STOPPED), "other"),
    ],
)
def test_a_session_that_is_to_start_now_does_not_wait_for_room_longer_than_for_a_worker(
    other: PlacementWorker, waits_for: str
) -> None:
    made = decide(session(), ends(20), other)
    assert made.nomination is not None
    assert made.nomination.worker_id == waits_for


def test_a_booked_session_waits_for_room_that_frees_in_time_before_a_worker_is_started() -> None:
    slot = Timeslot(start=at(30), end=at(90))
    made = decide(session(timeslot=slot), ends(20), worker("other", status=WorkerStatus.STOPPED))
    assert (made.code, made.nomination) == (
        WaitCode.WAITS_FOR_RELEASE,
        Nomination(worker_id="full", ready_at=at(20)),
    )


def test_a_booked_session_gets_a_worker_that_is_in_time_before_room_that_frees_late() -> None:
    slot = Timeslot(start=at(15), end=at(90))
    stopped = worker("other", status=WorkerStatus.STOPPED)
    made = decide(session(timeslot=slot), ends(20), stopped)
    assert made.nomination is not None
    assert made.nomination.worker_id == "other"
    alone = decide(session(timeslot=slot), ends(20), growth=1)
    assert (alone.code, alone.nomination and alone.nomination.worker_id) == (
        WaitCode.WAITS_FOR_RELEASE,
        "full",
    )


def test_sessions_of_any_region_are_launched_wherever_the_fleet_may_grow() -> None:
    sessions = [session(f"s{number}", 40, number) for number in range(4)]
    growth = {"a": Growth(count=1), "b": Growth(count=0), "c": Growth(count=2)}
    made = PlacementEngine.plan(Snapshot(sessions=tuple(sessions), templates=(METAL,), growth=growth), NOON)
    assert [(each.region, each.seats) for each in made.launches] == [
        ("a", (("s0",),)),
        ("c", (("s1",), ("s2",))),
    ]
    assert made.decisions["s3"].code is WaitCode.SCALE_UP_REFUSED
    bound = replace(sessions[0], demand=Demand(needs=size(40), region="b"))
    made = PlacementEngine.plan(
        Snapshot(sessions=(bound, *sessions[1:]), templates=(METAL,), growth=growth), NOON
    )
    assert made.decisions["s0"].code is WaitCode.SCALE_UP_REFUSED
    assert made.decisions["s3"].outcome is Outcome.SCALE_UP


def test_a_class_that_is_not_complete_is_held_back_whatever_room_there_is() -> None:
    seat = session("s0", batch=Batch(id="b", index=0, size=2, is_all_or_nothing=True))
    made = decide(seat, worker(), incomplete_batches=("b",))
    assert made.code is WaitCode.HELD_BACK_BY_GANG
    assert "not every seat of it is booked or due yet" in made.text


def test_a_region_that_rests_may_gain_what_it_lacks_when_it_may_grow_again() -> None:
    gone = worker(status=WorkerStatus.FAILED)
    resting = {"here": Growth(count=0, max_workers=1, refusal="cooldown", retry_at=at(5))}
    snapshot = Snapshot(workers=(gone,), templates=(METAL,), growth=resting)
    made = PlacementEngine.decide(snapshot, session(), NOON)
    assert made.explanation is not None
    assert made.explanation.eta is not None
    assert made.explanation.eta.likely == at(5) + timedelta(minutes=25)
