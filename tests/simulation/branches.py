"""Runs with a common beginning: it is run once, and forked where their faults begin."""

import asyncio
import os
import traceback
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from simulation.run import Outcome, simulate_under
from simulation.world.faults import Act, Fault, Faults

Plan = tuple[Fault, ...]
"""In the order in which its faults occur."""


def simulate_branches(scenario: str, plans: Iterable[Plan], quiet_seconds: float) -> dict[Plan, Outcome]:
    """The outcome of `simulate` for each plan with seed 0; what plans have in common is run once."""
    faults = _BranchingFaults(plans)
    try:
        outcome = simulate_under(faults, scenario, quiet_seconds)
    except BaseException:
        if faults.original is None:
            raise
        faults.original.send(traceback.format_exc())
        os._exit(1)
    outcomes = {**faults.outcomes, tuple(faults.plan): outcome}
    if faults.original is not None:
        faults.original.send(outcomes)
        os._exit(0)
    return outcomes


class _BranchingFaults(Faults):
    """No fault until a plan has its next one: there a fork of this process continues with it.

    With the last plan this process continues itself.
    """

    def __init__(self, plans: Iterable[Plan]) -> None:
        super().__init__(seed=0)
        self.outcomes: dict[Plan, Outcome] = {}
        """Of the forks that have ended."""
        self.original: Connection | None = None
        """In a fork, the connection to the process that waits for its outcomes."""
        self._expect(plans)

    def _expect(self, plans: Iterable[Plan]) -> None:
        """Set the plans, which all begin with the faults so far."""
        done = len(tuple(self.plan))
        self._is_complete = False
        """Whether one of them has no other fault than those."""
        self._ahead: dict[tuple[str, str, int], dict[Fault, list[Plan]]] = {}
        for plan in plans:
            if len(plan) == done:
                self._is_complete = True
                continue
            fault = plan[done]
            here = self._ahead.setdefault((fault.role, fault.site, fault.nth), {})
            here.setdefault(fault, []).append(plan)

    def choose(self, role: str, site: str, nth: int, possible: Iterable[Act]) -> Act | None:
        here = self._ahead.pop((role, site, nth), {})
        while here:
            fault, plans = here.popitem()
            is_the_last = not here and not self._ahead and not self._is_complete
            if is_the_last or self._is_fork_for(fault):
                self.follow((*self.plan, fault))
                self._expect(plans)
                break
        return super().choose(role, site, nth, possible)

    def _is_fork_for(self, fault: Fault) -> bool:
        """True in the new fork of this process; here False, once the fork has ended."""
        loop = asyncio.get_running_loop()
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            asyncio._set_running_loop(loop)  # a fork does not take it for running
            self.original = sender
            self.outcomes = {}
            return True
        sender.close()
        with receiver:
            received = receiver.recv()
        os.waitpid(pid, 0)
        if not isinstance(received, dict):
            raise RuntimeError(f"the run with {fault} broke off: {received}")
        self.outcomes.update(received)
        return False
