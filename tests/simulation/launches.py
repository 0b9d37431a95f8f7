"""Many launches at once, each interrupted once: the process that works on it crashes at a random call."""

from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from lcm.domain.launch import WORKER_ID_TAG, InstanceId
from lcm.domain.lifecycle import RUNNING
from simulation.invariants import ALL
from simulation.run import TEMPLATES, undisturbed
from simulation.story import RunEnded, Story, TooLate
from simulation.world.calls import Call, Violation
from simulation.world.faults import Faults
from simulation.world.knobs import Knobs
from simulation.world.processes import Process
from simulation.world.world import World
from support.virtual_time import run_in_virtual_time

WORKERS = 20
CALLS_OF_A_LAUNCH = 34
"""Calls of the control plane and the controller for one worker until its instance runs."""
LAUNCHING = ("pending>", "provisioning>")
QUICK = Knobs(
    lease_ttl=3,
    election_retry_seconds=1.0,
    reconcile_interval=10.0,
    instance_seconds=5.0,
    wait_seconds=5.0,
)


@dataclass(frozen=True)
class Launches:
    """The result of one run."""

    launched: int
    cut: int
    duplicates: list[str]
    orphans: list[str]
    violation: Violation | None


class Cutter:
    """Crashes the process that makes the n-th call of a launch, right before or right after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"cuts/{world.faults.seed}")
        self._calls_left: dict[str, int] = {}
        self._is_after: dict[str, bool] = {}
        self.cut: set[str] = set()
        world.on_call.append(self._before)
        world.on_effect.append(self._after)
        world.on_answer.append(lambda process, call, _: self._after(process, call))

    def _before(self, process: Process, call: Call) -> None:
        worker_id = self._launch_of(process, call)
        if worker_id is None:
            return
        if worker_id not in self._calls_left:
            self._calls_left[worker_id] = self._rng.randint(1, CALLS_OF_A_LAUNCH)
            self._is_after[worker_id] = self._rng.random() < 0.5
        self._calls_left[worker_id] -= 1
        if self._calls_left[worker_id] <= 0 and not self._is_after[worker_id]:
            self._cut(process, worker_id)

    def _after(self, process: Process, call: Call) -> None:
        worker_id = self._launch_of(process, call)
        if worker_id is not None and self._calls_left.get(worker_id, 1) <= 0:
            self._cut(process, worker_id)

    def _launch_of(self, process: Process, call: Call) -> str | None:
        """The worker, if this call is part of its launch and that was not cut before."""
        if process.role == "user" or not process.is_alive or not call.state.startswith(LAUNCHING):
            return None
        subject = call.subject.partition(" ")[0]
        instance = self._world.cloud.instances.get(InstanceId(subject))
        worker_id = instance.tags[WORKER_ID_TAG] if instance is not None else subject
        return None if worker_id in self.cut else worker_id

    def _cut(self, process: Process, worker_id: str) -> None:
        self.cut.add(worker_id)
        process.crash()


def launch_and_cut(seed: int) -> Launches:
    """Launch twenty workers, and crash the process that launches each once."""
    with undisturbed():
        return run_in_virtual_time(_launch_and_cut(seed))


async def _launch_and_cut(seed: int) -> Launches:
    world = World(Faults(seed), QUICK, yaml.safe_load(TEMPLATES.read_text()))
    invariants = [invariant(world) for invariant in ALL]
    cutter = Cutter(world)
    async with world.running():
        story = Story(world)
        try:
            workers = [await story.create(f"w-{number}") for number in range(WORKERS)]
            for worker in workers:
                await story.until(worker, RUNNING)
            await story.pause(30)
            for invariant in invariants:
                invariant.at_rest()
        except RunEnded:
            pass
        except TooLate as late:
            world.fail(Violation("I10Convergence", str(late)))
        except Violation as violation:
            world.fail(violation)
        return _count(world, cutter)


def _count(world: World, cutter: Cutter) -> Launches:
    instances = [instance for instance in world.cloud.instances.values() if not instance.is_gone]
    owners: list[Any] = [instance.tags[WORKER_ID_TAG] for instance in instances]
    running = {w.instance.id for w in world.disk.peek_all() if w.status is RUNNING}
    return Launches(
        launched=len(world.cloud.instances),
        cut=len(cutter.cut),
        duplicates=sorted({owner for owner in owners if owners.count(owner) > 1}),
        orphans=[instance.id for instance in instances if instance.id not in running],
        violation=world.violation,
    )
