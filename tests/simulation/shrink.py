"""From a failing run to the few faults that matter: delta debugging over the plan."""

from collections.abc import Callable, Sequence

from lcm.simulator.faults import Fault


def shrink(plan: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """A smallest part of the plan, as far as leaving out any piece goes, with which it still fails."""
    plan, pieces = list(plan), 2
    while len(plan) >= 2:
        size = max(1, len(plan) // pieces)
        for start in range(0, len(plan), size):
            rest = plan[:start] + plan[start + size :]
            if fails(rest):
                plan, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return plan
            pieces = min(len(plan), pieces * 2)
    return plan
