"""Every session on the right worker: the same snapshot leads to the same plan, and nothing is taken twice."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import Reserve
from lcm.domain.lablet.decision import Decision, Outcome, Plan, Score
from lcm.domain.lablet.definition import Demand, LicenseTier
from lcm.domain.lablet.filters import Label, Rejection, fits, vector
from lcm.domain.lablet.packing import Item, buy, choose_template, pack
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.ports import PortKind, PortRange, PortSpec
from lcm.domain.lablet.session import Batch, LabletSession, WaitCode
from lcm.domain.lablet.snapshot import Growth, PlacementWorker, Snapshot, Stage
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import WorkerStatus
from support.lablets import GROWTH, LARGE, METAL, NOON, claim, fleets, queues, session, size, worker


def plan(*, workers: list[PlacementWorker], sessions: list[LabletSession], **changes: object) -> Plan:
    snapshot = Snapshot(workers=tuple(workers), sessions=tuple(sessions))
    return PlacementEngine.plan(replace(snapshot, **changes), NOON)


def decide(view: PlacementWorker, wanted: LabletSession, **changes: object) -> Decision:
    snapshot = replace(Snapshot(workers=(view,), templates=(METAL,), growth=GROWTH), **changes)
    return PlacementEngine.decide(snapshot, wanted, NOON)


def rejections(decision: Decision) -> tuple[Rejection, ...]:
    assert decision.explanation is not None
    return decision.explanation.rejections


@given(fleets, queues)
def test_no_plan_places_more_than_a_worker_has_and_only_on_ready_ones(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    made = plan(workers=workers, sessions=sessions, templates=(METAL,), growth=GROWTH)
    assert set(made.decisions) == {each.id for each in sessions}
    for view in workers:
        placed = [s for s in sessions if made.decisions[s.id].worker_id == view.id]
        used = sum(s.demand.needs.cpu for s in placed) + sum(c.needs.cpu for c in view.claims)
        assert not placed or (view.stage is Stage.READY and view.declared and used <= view.declared.cpu)


@given(fleets, queues)
def test_the_order_of_workers_and_sessions_does_not_matter(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    first = plan(workers=workers, sessions=sessions, templates=(LARGE, METAL), growth=GROWTH)
    second = plan(workers=workers[::-1], sessions=sessions[::-1], templates=(METAL, LARGE), growth=GROWTH)
    assert (first.decisions, first.launches) == (second.decisions, second.launches)
    assert first == plan(workers=workers, sessions=sessions, templates=(LARGE, METAL), growth=GROWTH)


@given(fleets, queues)
def test_a_later_session_of_equal_needs_is_never_placed_before_an_earlier_one(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    made = plan(workers=workers, sessions=sessions, templates=(METAL,), growth=GROWTH)
    for needs in {each.demand for each in sessions}:
        equals = sorted((s for s in sessions if s.demand == needs), key=lambda s: (s.due_at, s.id))
        placed = [made.decisions[s.id].outcome is Outcome.ASSIGN for s in equals]
        assert placed == sorted(placed, reverse=True)


@given(fleets, queues)
def test_the_explanation_of_a_session_is_what_the_cycle_does(
    workers: list[PlacementWorker], sessions: list[LabletSession]
) -> None:
    snapshot = Snapshot(workers=tuple(workers), sessions=tuple(sessions), templates=(METAL,), growth=GROWTH)
    made = PlacementEngine.plan(snapshot, NOON)
    for each in sessions:
        alone = PlacementEngine.decide(snapshot, each, NOON)
        assert replace(alone, explanation=None) == made.decisions[each.id]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=30))
def test_no_more_workers_are_bought_than_first_fit_decreasing_needs(needs: list[int]) -> None:
    items = [vector(size(need)) for need in needs]
    room = vector(LARGE.declared)
    bins = pack([Item(item) for item in items], room)
    assert bins is not None
    assert sorted(index for each in bins for index in each) == list(range(len(items)))
    for each in bins:
        taken = tuple(sum(items[index][kind] for index in each) for kind in range(4))
        assert fits((taken[0], taken[1], taken[2], taken[3]), room)
    rooms: list[float] = []
    for need in sorted(needs, reverse=True):
        place = next((i for i, left in enumerate(rooms) if need <= left), None)
        if place is None:
            rooms.append(8.0 - need)
        else:
            rooms[place] -= need
    assert len(bins) <= len(rooms)


def test_the_fullest_worker_that_fits_is_taken_and_ties_go_by_name() -> None:
    fuller = worker("w2", claims=(claim(4),))
    full = worker("w3", claims=(claim(7),))
    made = plan(workers=[worker("w1"), fuller, full], sessions=[session()])
    assert made.decisions["s"].worker_id == "w2"
    assert made.decisions["s"].score == Score(cpu=0.5, memory=0.5, sessions=0.01, total=0.51)
    assert plan(workers=[worker("b"), worker("a")], sessions=[session()]).decisions["s"].worker_id == "a"


def test_a_worker_that_failed_the_session_or_is_overloaded_is_its_last_choice() -> None:
    fuller = worker("w2", claims=(claim(4),))
    failed = session(avoided_workers={"w2": NOON + timedelta(minutes=1)})
    assert plan(workers=[worker("w1"), fuller], sessions=[failed]).decisions["s"].worker_id == "w1"
    loaded = replace(fuller, is_overloaded=True)
    assert plan(workers=[worker("w1"), loaded], sessions=[session()]).decisions["s"].worker_id == "w1"


def test_every_filter_is_named_with_its_numbers_for_one_worker() -> None:
    port = PortSpec(name="p", node="r", kind=PortKind.SERIAL, protocol="serial", fixed=2000)
    demand = Demand(
        needs=size(9),
        ports=(port,),
        license_affinity=(LicenseTier.ENTERPRISE,),
        cml_version_min="2.10",
        node_definitions=("xr",),
    )
    view = worker(
        status=WorkerStatus.STOPPED,
        license=LicenseTier.PERSONAL,
        cml_version="2.9",
        node_definitions=frozenset(),
        has_patty=False,
        foreign_ports=frozenset({2000}),
    )
    found = rejections(decide(view, session(demand=demand)))
    assert {each.label for each in found} == set(Label)
    cpu = next(each for each in found if each.sub == "cpu")
    assert (cpu.need, cpu.have) == ("9 CPUs", "8 free of 8 allocatable, 8 declared")


def test_a_worker_of_unknown_size_is_not_infinite() -> None:
    made = decide(worker(declared=None), session())
    assert made.outcome is Outcome.SCALE_UP
    assert [each.sub for each in rejections(made)] == ["unknown"]


def test_claims_are_judged_against_what_cml_leaves() -> None:
    reserved = worker(reserve=Reserve(memory_gb=4, cpu_overcommit=2))
    assert decide(reserved, session(cpu=5)).outcome is Outcome.SCALE_UP
    assert decide(reserved, session(cpu=4)).outcome is Outcome.ASSIGN


def test_a_personal_license_runs_twenty_nodes_in_all() -> None:
    used = replace(claim(1), needs=Capacity(nodes=20))
    view = worker(license=LicenseTier.PERSONAL, claims=(used,))
    made = decide(view, session())
    assert made.outcome is Outcome.SCALE_UP
    assert "nodes_over_20" in {each.sub for each in rejections(made)}


def test_ports_of_one_plan_are_not_granted_twice() -> None:
    port = PortSpec(name="p", node="r", kind=PortKind.SERIAL, protocol="serial")
    demand = Demand(needs=size(1), ports=(port,))
    sessions = [session(f"s{number}", demand=demand) for number in range(3)]
    made = plan(workers=[worker()], sessions=sessions, ports=PortRange(first=2000, last=2001))
    outcomes = [made.decisions[f"s{number}"].outcome for number in range(3)]
    assert outcomes == [Outcome.ASSIGN, Outcome.ASSIGN, Outcome.WAIT]


def test_room_that_frees_in_time_is_waited_for_and_held_against_later_sessions() -> None:
    slot = Timeslot(start=NOON + timedelta(minutes=30), end=NOON + timedelta(minutes=90))
    view = worker(claims=(claim(6, ends_at=NOON + timedelta(minutes=10)),))
    booked = session("a", 8, timeslot=slot, created_at=NOON)
    later = session("b", 2, timeslot=replace(slot, start=slot.start + timedelta(minutes=1)))
    made = plan(workers=[view], sessions=[booked, later], templates=(METAL,), growth=GROWTH)
    assert made.decisions["a"].code is WaitCode.WAITS_FOR_RELEASE
    assert made.decisions["b"].outcome is Outcome.SCALE_UP


def test_a_class_back_to_back_needs_workers_of_its_own() -> None:
    slot = Timeslot(start=NOON + timedelta(minutes=35), end=NOON + timedelta(minutes=90))
    view = worker(claims=(claim(8, ends_at=NOON + timedelta(minutes=35)),))
    made = decide(view, session(timeslot=slot))
    assert (made.outcome, made.code) == (Outcome.SCALE_UP, WaitCode.WAITS_FOR_WORKER)


def test_workers_are_brought_back_in_order_before_one_is_launched() -> None:
    coming = worker("a", 2, status=WorkerStatus.STARTING, ready_at=NOON)
    draining = worker("b", 2, status=WorkerStatus.DRAINING, is_drained_by_scale_down=True)
    stopped = worker("c", 2, status=WorkerStatus.STOPPED)
    sessions = [session(f"s{number}") for number in range(4)]
    made = plan(workers=[stopped, draining, coming], sessions=sessions, templates=(METAL,), growth=GROWTH)
    nominated = [d.nomination and d.nomination.worker_id for d in made.decisions.values()]
    assert nominated == ["a", "b", "c", None]
    assert [(each.worker_id, each.stage) for each in made.steps] == [("b", "draining"), ("c", "stopped")]
    assert [(each.template, each.seats) for each in made.launches] == [("metal", (("s3",),))]


def test_a_group_is_launched_at_once_on_the_cheapest_template_and_only_as_far_as_allowed() -> None:
    sessions = [session(f"s{number:02}", 4, number) for number in range(20)]
    made = plan(workers=[], sessions=sessions, templates=(LARGE, METAL), growth={"here": Growth(count=3)})
    assert [(each.template, each.count) for each in made.launches] == [("metal", 2)]
    made = plan(workers=[], sessions=sessions, templates=(LARGE,), growth={"here": Growth(count=3)})
    refused = [s.id for s in sessions if made.decisions[s.id].code is WaitCode.SCALE_UP_REFUSED]
    assert (made.launches[0].count, refused) == (3, [s.id for s in sessions[6:]])


def test_a_session_larger_than_everything_is_impossible() -> None:
    assert decide(worker(), session(cpu=500)).outcome is Outcome.IMPOSSIBLE


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(0, 2))
def test_a_gang_is_placed_as_a_whole_or_not_at_all(seats: int, growth: int) -> None:
    sessions = [
        session(f"s{number:02}", 4, batch=Batch(id="class", index=number, is_all_or_nothing=True))
        for number in range(seats)
    ]
    other = session("z", 1, 59)
    made = plan(
        workers=[worker()],
        sessions=[*sessions, other],
        templates=(LARGE,),
        growth={"here": Growth(count=growth)},
    )
    placed = sum(made.decisions[s.id].outcome is Outcome.ASSIGN for s in sessions)
    assert placed in (0, seats)
    is_too_large = seats > 2 + 2 * growth
    assert (made.decisions["z"].outcome is Outcome.ASSIGN) == (seats < 2 or is_too_large)


def test_sessions_that_wait_for_their_window_their_pause_or_their_place_in_the_queue_say_so() -> None:
    sessions = [
        session("a", status=SessionStatus.PENDING),
        session("b", next_try_at=NOON + timedelta(seconds=4)),
        session("c"),
    ]
    made = plan(workers=[worker()], sessions=sessions, queue_limit=2)
    codes = [made.decisions[name].code for name in "abc"]
    assert codes == [WaitCode.WINDOW_NOT_OPEN, WaitCode.BACKOFF, WaitCode.AHEAD_IN_QUEUE]


def test_the_template_is_the_cheapest_that_fits_else_the_largest_else_by_cpu() -> None:
    assert choose_template([METAL, LARGE], size(8)) == ("large", "")
    assert choose_template([METAL, LARGE], size(8), headroom_percent=20).name == "metal"
    largest = choose_template([METAL, LARGE], size(500))
    assert (largest.name, bool(largest.warning)) == ("metal", True)
    assert [choose_template([], size(cpu)).name for cpu in (32, 16, 4, 1)] == [
        "metal",
        "large",
        "medium",
        "small",
    ]
    assert buy([Item(vector(size(500)))], [METAL]) is None
