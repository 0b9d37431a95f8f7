"""Every call site × every fault × every abstract state that a scenario meets, one fault at a time.

The fault-free run shows the points; each act is injected once at each point. A point that an
earlier scenario covered is not repeated. Call sites that only a fault leads to get their faults in the run
with that fault. Then pairs: a second crash during the recovery from the first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, groupby, islice

from simulation.branches import simulate_branches
from simulation.run import Outcome, simulate
from simulation.scenarios import SCENARIOS
from simulation.world.calls import Violation
from simulation.world.faults import Act, Fault
from simulation.world.world import Point

LONG = ("an_idle_day", "thirty_idle_days", "from_none_to_twenty_and_back")
"""They meet no state that the others do not."""

PASS = [name for name in SCENARIOS if name not in LONG]


LAUNCHED = "new to running"
IMPATIENT = (
    "the_desired_status_flips_inside_a_reconcile",
    "leader_changes_every_thirty_seconds",
    "control_plane_restarts",
    "a_human_stops_and_terminates_in_the_console",
    "a_human_restarts_in_the_console",
    "an_instance_dies_while_it_launches",
    "a_watched_worker_gets_another_address",
    "a_person_starts_what_is_being_paused",
    "a_drain_by_scale_down_is_cancelled_for_a_session",
)
"""Here people do not wait for the effect of a request, so how far it gets depends on timing. A session that
is booked after the drain has become a stop gets another worker."""


QUIET_SECONDS = 600.0
"""With the time before, longer than any timer here. Scenarios without a fault, seeds that once failed,
planted bugs and a soak rest for half an hour."""

TOGETHER = 20
"""So many runs share a beginning: with more of them a core would idle at the end."""


@dataclass(frozen=True)
class Job:
    """One run of the pass."""

    scenario: str
    plan: tuple[Fault, ...]
    point: Point


def single_faults(fault_free: Mapping[str, Outcome]) -> Iterator[Job]:
    """Each (role, site, state, act) once, in the first scenario that meets it."""
    seen: set[tuple[Point, Act]] = set()
    for scenario, outcome in fault_free.items():
        for point, nth in sorted(outcome.points.items(), key=lambda item: item[1]):
            role, site, _ = point
            for act in outcome.acts[role, site]:
                at = outcome.stale_points.get(point) if act is Act.STALE else nth
                if at is not None and (point, act) not in seen:
                    seen.add((point, act))
                    yield Job(scenario, (Fault(role, site, at, act),), point)


def faults_behind_faults(
    fault_free: Mapping[str, Outcome], disturbed_once: Iterable[tuple[Job, Outcome]]
) -> Iterator[Job]:
    """Each act at each call site that only a fault leads to, in the first run that was led there."""
    seen = {
        (role, site, act) for outcome in fault_free.values() for role, site, act in possible_faults(outcome)
    }
    for job, outcome in disturbed_once:
        new = sorted(set(possible_faults(outcome)) - seen)
        seen.update(new)
        for role, site, act in new:
            at = outcome.stale_points if act is Act.STALE else outcome.points
            nth, point = min((n, p) for p, n in at.items() if p[:2] == (role, site))
            yield Job(job.scenario, (*job.plan, Fault(role, site, nth, act)), point)


def possible_faults(outcome: Outcome) -> Iterator[tuple[str, str, Act]]:
    """The faults that are possible at each call site of this run."""
    stale = {(role, site) for role, site, _ in outcome.stale_points}
    for role, site in {(role, site) for role, site, _ in outcome.points}:
        for act in outcome.acts[role, site]:
            if act is not Act.STALE or (role, site) in stale:
                yield role, site, act


def crash_pairs(disturbed_once: Iterable[tuple[Job, Outcome]]) -> Iterator[Job]:
    """After each crash of the pass another one during its recovery, at the point chosen least so far."""
    chosen: Counter[Point] = Counter()
    for job, outcome in disturbed_once:
        (first,) = job.plan
        if first.act is Act.CRASH_AFTER and outcome.recovery:
            point = min(outcome.recovery, key=chosen.__getitem__)
            chosen[point] += 1
            role, site, _ = point
            second = Fault(role, site, outcome.recovery[point], Act.CRASH_BEFORE)
            yield Job(job.scenario, (first, second), point)


def long_faults(scenario: str, outcome: Outcome) -> Iterator[Job]:
    """One fault of each kind, spread over a scenario too long to be disturbed everywhere."""
    jobs = list(single_faults({scenario: outcome}))
    for number, act in enumerate(Act):
        kind = [job for job in jobs if job.plan[0].act is act]
        yield kind[number * len(kind) // len(Act)]


def run_all(pool: Executor, jobs: Iterable[Job], together: int = TOGETHER) -> Iterator[tuple[Job, Outcome]]:
    """Run all jobs, in groups of that size."""
    return chain.from_iterable(pool.map(_run_group, _in_groups(jobs, together)))


def _in_groups(jobs: Iterable[Job], size: int) -> Iterator[list[Job]]:
    """Group jobs of one scenario, whose beginning they share."""
    for _, of_scenario in groupby(jobs, key=lambda job: job.scenario):
        while group := list(islice(of_scenario, size)):
            yield group


def _run_group(jobs: Sequence[Job]) -> list[tuple[Job, Outcome]]:
    outcomes = simulate_branches(jobs[0].scenario, [job.plan for job in jobs], QUIET_SECONDS)
    return [(job, outcomes[job.plan]) for job in jobs]


def run_alone(job: Job) -> Outcome:
    """Run one job from its own beginning, as a replay does."""
    return simulate(job.scenario, 0, plan=job.plan, quiet_seconds=QUIET_SECONDS)


def differs(job: Job, outcome: Outcome, fault_free: Mapping[str, Outcome]) -> Violation | None:
    """I20: the instances made the same transitions as without the fault, no more and no less."""
    expected = fault_free[job.scenario].effects
    if job.scenario in IMPATIENT:
        return None
    if any(fault.act is Act.LATE for fault in job.plan):
        # A stop or a request that lands minutes late is carried out, and then corrected; a launch is not.
        is_same = outcome.effects.get(LAUNCHED) == expected.get(LAUNCHED)
    else:
        is_same = outcome.effects == expected
    if not is_same:
        return Violation("I20Differential", f"{dict(outcome.effects)} instead of {dict(expected)}")
    return None
