"""Runs that have their beginning in common: it is run once, and forked where their faults set in."""

import asyncio
import os
import traceback
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from lcm.simulator.faults import Act, Fault, Faults
from simulation.run import Outcome, simulate_under

Plan = tuple[Fault, ...]
"""In the order in which its faults occur."""


def simulate_branches(scenario: str, plans: Iterable[Plan], quiet_seconds: float) -> dict[Plan, Outcome]:
    """What `simulate` says of each plan with seed 0, at the cost of what comes after its first fault."""
    faults = _BranchingFaults(plans)
    try:
        outcome = simulate_under(faults, scenario, quiet_seconds)
    except BaseException:
        if faults.original is None:
            raise
        faults.original.send(traceback.format_exc())
        os._exit(1)
    if faults.original is not None:
        faults.original.send(outcome)
        os._exit(0)
    return {**faults.outcomes, tuple(faults.plan): outcome}


class _BranchingFaults(Faults):
    """None, up to the first call of a plan: there a copy of this process goes on with that plan.

    With the last plan this process goes on itself.
    """

    def __init__(self, plans: Iterable[Plan]) -> None:
        super().__init__(seed=0)
        self.outcomes: dict[Plan, Outcome] = {}
        """Of the copies that have come to their end."""
        self.original: Connection | None = None
        """In a copy, who waits for its outcome."""
        self._ahead: dict[tuple[str, str, int], list[Plan]] = {}
        for plan in plans:
            first = plan[0]
            self._ahead.setdefault((first.role, first.site, first.nth), []).append(plan)

    def choose(self, role: str, site: str, nth: int, possible: Iterable[Act]) -> Act | None:
        here = self._ahead.pop((role, site, nth), [])
        while here:
            plan = here.pop()
            is_last = not here and not self._ahead
            if is_last or self._is_the_copy_for(plan):
                self._ahead.clear()
                self.follow(plan)
                break
        return super().choose(role, site, nth, possible)

    def _is_the_copy_for(self, plan: Plan) -> bool:
        """True in the new copy of this process; here False, once the copy has come to its end."""
        loop = asyncio.get_running_loop()
        hears, tells = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            asyncio._set_running_loop(loop)  # a fork does not take it for running
            self.original = tells
            return True
        tells.close()
        with hears:
            told = hears.recv()
        os.waitpid(pid, 0)
        if not isinstance(told, Outcome):
            raise RuntimeError(f"the run with {';'.join(map(str, plan))} broke off: {told}")
        self.outcomes[plan] = told
        return False
