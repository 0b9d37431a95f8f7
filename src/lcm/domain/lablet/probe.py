"""The test of the granted ports of a lab that has booted: what is tested, and what the answers mean.

A port that does not answer costs people an address, not their lab: after a minute the session becomes READY
with the failed step.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from lcm.domain.lablet.lab import LabStep, ProbedPorts, StepReport, StepStatus
from lcm.domain.lablet.ports import PortSpec

MAX_TRIES: Final = 12
TRY_SECONDS: Final = 5.0
"""Between two tries."""
NAMED: Final = 3
"""Ports that a step names."""


class PortAnswer(StrEnum):
    """What becomes of a connection to a port."""

    OPEN = "open"
    REFUSED = "refused"
    """The worker answers that nothing listens there."""
    SILENT = "silent"
    """No answer in time, or no way there from here: people elsewhere may reach it."""


_WORDS: Final = {PortAnswer.REFUSED: "refuses connections", PortAnswer.SILENT: "does not answer"}


def probed_ports(specs: Sequence[PortSpec], ports: Mapping[str, int]) -> dict[int, PortSpec]:
    """The ports that are tested; a UDP port never says whether it is open."""
    return {ports[spec.name]: spec for spec in specs if spec.name in ports and spec.protocol != "udp"}


def judge(
    specs: Mapping[int, PortSpec], before: ProbedPorts, answers: Mapping[int, PortAnswer], *, attempt: int
) -> tuple[StepReport, ProbedPorts]:
    """The step after a try, and what is known of the ports. One that was open once counts as open."""
    is_open = {port for port, answer in answers.items() if answer is PortAnswer.OPEN} | set(before.open)
    closed = {port: answer for port, answer in sorted(answers.items()) if port not in is_open}
    refused = [port for port, answer in closed.items() if answer is PortAnswer.REFUSED]
    found = replace(before, open=tuple(sorted(is_open)), refused=tuple(refused))
    status = StepStatus.FAILED if attempt >= MAX_TRIES else StepStatus.RUNNING
    if not closed:
        return StepReport(step=LabStep.PROBE, status=StepStatus.COMPLETED, attempts=attempt), found
    detail = _describe(specs, closed, is_open)
    return StepReport(step=LabStep.PROBE, status=status, attempts=attempt, detail=detail), found


def _describe(
    specs: Mapping[int, PortSpec], closed: Mapping[int, PortAnswer], is_open: Collection[int]
) -> str:
    kinds = set(closed.values())
    if not is_open and kinds == {PortAnswer.REFUSED}:
        return (
            "PATty is off on this worker: CML answers, and every port of the lab refuses connections;"
            " set PATty up on the CML host"
        )
    if not is_open and kinds == {PortAnswer.SILENT}:
        return (
            "no port of the lab answers: let the lablet controller through to the granted ports of the"
            " worker, or set PROBE_PORTS=false if only people are to reach them"
        )
    named = [
        f"node {specs[port].node}, port {specs[port].name} {_WORDS[answer]}"
        for port, answer in list(closed.items())[:NAMED]
    ]
    more = f"; {len(closed) - NAMED} more" if len(closed) > NAMED else ""
    return f"{'; '.join(named)}{more}; see PATty's log on the CML host"
