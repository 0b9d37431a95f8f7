"""Fault coverage: injected faults by call site, in how many abstract states: `make sim-coverage`."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

from simulation.exhaustive import PASS, faults_behind_faults, possible_faults, run_all, single_faults
from simulation.run import Outcome, simulate
from simulation.world.faults import Act
from simulation.world.world import Point, Site

SHORT = {
    Act.CRASH_BEFORE: "before",
    Act.CRASH_AFTER: "after",
    Act.LOST: "lost",
    Act.LATE: "late",
    Act.ERROR: "error",
    Act.HANG: "hang",
    Act.STALE: "stale",
    Act.FREEZE: "freeze",
}


@dataclass
class Coverage:
    """Call sites, the possible faults and met states of each, and the injected faults."""

    acts: dict[Site, tuple[Act, ...]] = field(default_factory=dict)
    met: set[Point] = field(default_factory=set)
    injected: set[tuple[Point, Act]] = field(default_factory=set)

    @staticmethod
    def of(fault_free: Mapping[str, Outcome], disturbed: Iterable[Outcome]) -> "Coverage":
        coverage = Coverage()
        for outcome in fault_free.values():
            coverage.met |= outcome.points.keys()
            met = {(role, site) for role, site, _ in outcome.points}
            coverage.acts |= {site: outcome.acts[site] for site in met}
        for outcome in disturbed:
            coverage.injected |= outcome.injected
        return coverage

    def missing(self, *others: Iterable[Outcome]) -> list[str]:
        """Faults that are possible at a call site these or other runs met, and were not injected there."""
        done = {(role, site, act) for (role, site, _), act in self.injected}
        possible = {(*site, act) for site, acts in self.acts.items() for act in acts}
        possible.update(met for outcome in chain(*others) for met in possible_faults(outcome))
        return [f"{role} {site}: {act.value}" for role, site, act in sorted(possible - done)]

    def table(self) -> str:
        """Per site the states it was met in, and per fault the number of those in which it was injected."""
        states = Counter((role, site) for role, site, _ in self.met)
        done = Counter(
            ((role, site), act)
            for (role, site, state), act in self.injected
            if (role, site, state) in self.met
        )
        width = max(len(f"{role} {site}") for role, site in self.acts)
        heading = f"{'call site':{width}} states" + "".join(f"{SHORT[act]:>8}" for act in Act)
        lines = [heading, "-" * len(heading)]
        for (role, site), acts in sorted(self.acts.items()):
            cells = (f"{done[(role, site), act] if act in acts else '·':>8}" for act in Act)
            lines.append(f"{f'{role} {site}':{width}} {states[role, site]:>6}" + "".join(cells))
        points = f"{len(self.acts)} call sites, {len(self.met)} points (site × state)"
        lines.append(f"{points}, {sum(done.values())} faults injected at them")
        return "\n".join(lines)


def main() -> None:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        fault_free = dict(zip(PASS, pool.map(simulate, PASS, [0] * len(PASS)), strict=True))
        once = list(run_all(pool, single_faults(fault_free)))
        behind = list(run_all(pool, faults_behind_faults(fault_free, once)))
    disturbed = [outcome for _, outcome in (*once, *behind)]
    coverage = Coverage.of(fault_free, disturbed)
    print(coverage.table())
    for outcome in disturbed:
        if outcome.violation is not None:
            print(f"{outcome.violation}; {outcome.replay}")
    for missing in coverage.missing(disturbed):
        print(f"not covered: {missing}")


if __name__ == "__main__":
    main()
