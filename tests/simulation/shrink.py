"""From a failing run to the few faults that matter: delta debugging over the plan."""

from collections.abc import Callable, Sequence

from simulation.run import Outcome, simulate
from simulation.world.faults import Fault

MAX_ATTEMPTS = 150


def shrink(
    plan: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], attempts: int = MAX_ATTEMPTS
) -> list[Fault]:
    """A smallest part of the plan, as far as leaving out any piece goes, with which it still fails."""
    plan, pieces = list(plan), 2
    while plan and attempts > 0:
        size = -(-len(plan) // pieces)
        for start in range(0, len(plan), size):
            rest = plan[:start] + plan[start + size :]
            attempts -= 1
            if fails(rest):
                plan, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return plan
            pieces = min(len(plan), pieces * 2)
    return plan


def smallest(outcome: Outcome) -> Outcome:
    """The same failure with as few faults as possible."""
    assert outcome.violation is not None
    invariant = outcome.violation.invariant
    found = outcome

    def fails(part: Sequence[Fault]) -> bool:
        nonlocal found
        attempt = simulate(outcome.scenario, outcome.seed, plan=part)
        is_same = attempt.violation is not None and attempt.violation.invariant == invariant
        if is_same:
            found = attempt
        return is_same

    shrink(outcome.applied, fails)
    return found


def explain(outcomes: Sequence[Outcome]) -> str:
    """The first failures in full, the very first one with as few faults as it takes."""
    if not outcomes:
        return ""
    first, *others = outcomes
    small = smallest(first)
    lines = [
        small.explain(),
        f"shrunk from {len(first.applied)} faults to {len(small.applied)}; as it was, {first.replay}",
        *(f"also: {other.violation}; {other.replay}" for other in others[:10]),
        f"{len(outcomes)} violations",
    ]
    return "\n".join(lines)
