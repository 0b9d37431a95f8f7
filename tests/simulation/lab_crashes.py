"""Many sessions, each interrupted once: the process that works on it crashes at a random call of its life.

`make soak-labs SESSIONS=1000` runs so many; a part of them is in every test run.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random

import yaml

from lcm.domain.lablet.states import RUNNING
from lcm.domain.lifecycle import RUNNING as WORKER_RUNNING
from simulation.invariants import ALL
from simulation.lab_desk import LabDesk
from simulation.run import TEMPLATES, undisturbed
from simulation.story import RunEnded, Story, TooLate
from simulation.world.calls import Call, Violation
from simulation.world.faults import Faults
from simulation.world.knobs import Knobs
from simulation.world.processes import Process
from simulation.world.world import World
from support.virtual_time import run_in_virtual_time

SESSIONS = 20
"""Of one run, on two workers."""
CALLS_OF_A_SESSION = 100
"""Calls of the control plane and the lablet controller about one session, from its placement to its end."""
QUICK = Knobs(
    lablet_controllers=2,
    schedulers=1,
    controllers=1,
    monitoring=True,
    people=True,
    statistics_seconds=60.0,
    activity_events_kept=1_000,
    idle_check_seconds=600.0,
    lease_ttl=3,
    election_retry_seconds=1.0,
    reconcile_interval=10.0,
    instance_seconds=1.0,
    heartbeat_seconds=600.0,
)


@dataclass(frozen=True)
class Crashes:
    """The result of one run."""

    ended: int
    cut: int
    leaked: list[str]
    doubled: list[str]
    claims: list[str]
    """Claims that are left."""
    violation: Violation | None

    @property
    def is_clean(self) -> bool:
        return not (self.leaked or self.doubled or self.claims or self.violation)


class Cutter:
    """Crashes the process that makes the n-th call about a session, right before or right after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"cuts/{world.faults.seed}")
        self._calls_left: dict[str, int] = {}
        self._is_after: dict[str, bool] = {}
        self.calls: Counter[str] = Counter()
        self.cut: set[str] = set()
        world.on_call.append(self._before)
        world.on_answer.append(lambda process, call, _: self._after(process, call))

    def _before(self, process: Process, call: Call) -> None:
        session_id = self._session_of(process, call)
        if session_id is None:
            return
        self.calls[session_id] += 1
        if session_id not in self._calls_left:
            self._calls_left[session_id] = self._rng.randint(1, CALLS_OF_A_SESSION)
            self._is_after[session_id] = self._rng.random() < 0.5
        self._calls_left[session_id] -= 1
        if self._calls_left[session_id] <= 0 and not self._is_after[session_id]:
            self._cut(process, session_id)

    def _after(self, process: Process, call: Call) -> None:
        session_id = self._session_of(process, call)
        if session_id is not None and self._calls_left.get(session_id, 1) <= 0:
            self._cut(process, session_id)

    def _session_of(self, process: Process, call: Call) -> str | None:
        """The session that a worker has, if the call is about it and it was not cut before."""
        if process.role not in ("lablets", "plane") or not process.is_alive:
            return None
        session_id = call.subject.partition(" ")[0]
        session = self._world.disk.session(session_id)
        is_open = session is not None and session.worker_id is not None and not session.is_ended
        return session_id if is_open and session_id not in self.cut else None

    def _cut(self, process: Process, session_id: str) -> None:
        self.cut.add(session_id)
        process.crash()


def run_and_cut(seed: int) -> Crashes:
    """Bring twenty labs up and down, and crash whoever works on each once."""
    with undisturbed():
        return run_in_virtual_time(_run_and_cut(seed))


async def _run_and_cut(seed: int) -> Crashes:
    world = World(Faults(seed), QUICK, yaml.safe_load(TEMPLATES.read_text()))
    invariants = [invariant(world) for invariant in ALL]
    cutter = Cutter(world)
    async with world.running():
        try:
            await _live_and_end(LabDesk(Story(world)))
            for invariant in invariants:
                invariant.at_rest()
        except RunEnded:
            pass
        except TooLate as late:
            world.fail(Violation("I10Convergence", str(late)))
        except Violation as violation:
            world.fail(violation)
        return _count(world, cutter)


async def _live_and_end(desk: LabDesk) -> None:
    """A person has a running lab on each worker all the time."""
    definition = await desk.define("kept", collect="configs")
    for name in ("ada", "bob"):
        worker = await desk.create(name, "metal")
        await desk.until(worker, WORKER_RUNNING)
        desk.make_own_lab(await desk.a_server(worker), "a person's")
    sessions = await desk.book_class(SESSIONS, definition)
    for session in sessions:
        await desk.until_session(session, RUNNING)
    await desk.end_all()
    await desk.settle(3_600.0)


def _count(world: World, cutter: Cutter) -> Crashes:
    assert world.live is not None
    made = Counter(known.marker for known in world.live.imports.values())
    there = {lab.id for _, lab in world.live.labs()}
    return Crashes(
        ended=sum(session.is_ended for session in world.disk.sessions()),
        cut=len(cutter.cut),
        leaked=sorted(there & world.live.imports.keys()),
        doubled=[str(marker) for marker, count in made.items() if count > 1],
        claims=[claim.session_id for worker in world.disk.peek_all() for claim in worker.claims],
        violation=world.violation,
    )


def report(runs: Iterable[Crashes]) -> str:
    runs = list(runs)
    leaked, doubled, claims = (sum(map(len, each)) for each in zip(*map(_left_by, runs), strict=True))
    violations = [str(run.violation) for run in runs if run.violation is not None]
    found = (
        f"{sum(run.ended for run in runs)} sessions, {sum(run.cut for run in runs)} crashes, {leaked} labs"
        f" leaked, {doubled} doubled, {claims} claims left, {len(violations)} violations"
    )
    return "\n".join([found, *violations])


def _left_by(run: Crashes) -> tuple[list[str], list[str], list[str]]:
    return run.leaked, run.doubled, run.claims


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak-labs", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    options = parser.parse_args()
    seeds = range(-(-options.sessions // SESSIONS))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(run_and_cut, seeds))
    print(report(runs))
    sys.exit(not all(run.is_clean for run in runs))


if __name__ == "__main__":
    main()
