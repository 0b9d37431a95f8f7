"""What the answers of the granted ports mean, in words that say what to do."""

import pytest

from lcm.domain.lablet.lab import MAX_DETAIL_BYTES, NOT_PROBED, ProbedPorts, StepStatus
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.probe import MAX_TRIES, PortAnswer, judge, probed_ports

OPEN, REFUSED, SILENT = PortAnswer.OPEN, PortAnswer.REFUSED, PortAnswer.SILENT


def spec(number: int, protocol: str = "serial") -> PortSpec:
    kind = PortKind.SERIAL if protocol == "serial" else PortKind.PAT
    return PortSpec(name=f"n{number}_{protocol}", node=f"n{number}", kind=kind, protocol=protocol)


SPECS = {2000 + number: spec(number) for number in range(6)}


def detail(answers: dict[int, PortAnswer], before: ProbedPorts = NOT_PROBED) -> str:
    step, _ = judge(SPECS, before, answers, attempt=1)
    assert step.status is StepStatus.RUNNING
    assert len(step.detail.encode()) <= MAX_DETAIL_BYTES
    return step.detail


def test_ports_that_were_granted_are_tested_except_udp() -> None:
    specs = [spec(0), spec(1, "udp"), spec(2, "tcp")]
    assert list(probed_ports(specs, {"n0_serial": 2000, "n1_udp": 2001})) == [2000]
    assert list(probed_ports(specs, {each.name: 2005 for each in specs[1:]})) == [2005]


def test_when_every_port_is_open_the_step_is_completed() -> None:
    step, probed = judge(SPECS, ProbedPorts(open=(2001,), refused=(2000,)), {2000: OPEN}, attempt=MAX_TRIES)
    assert (step.status, step.detail, step.attempts) == (StepStatus.COMPLETED, "", MAX_TRIES)
    assert (probed.open, probed.refused) == ((2000, 2001), ())
    assert [probed.says(port) for port in (2000, 2002)] == [True, None]


def test_when_every_port_is_refused_patty_is_off() -> None:
    assert detail({2000: REFUSED, 2001: REFUSED}).startswith("PATty is off on this worker")
    assert "PATty is off" not in detail({2000: REFUSED, 2001: OPEN})
    assert "PATty is off" not in detail({2000: REFUSED}, ProbedPorts(open=(2001,)))
    assert "PATty is off" not in detail({2000: REFUSED, 2001: SILENT})


def test_when_no_port_answers_the_way_there_is_closed() -> None:
    assert "PROBE_PORTS=false" in detail({2000: SILENT, 2001: SILENT})


def test_some_ports_are_named_with_their_nodes() -> None:
    some = detail({2000: OPEN, 2001: REFUSED, 2002: SILENT})
    assert some.startswith("node n1, port n1_serial refuses connections; node n2, port n2_serial does not")
    many = detail({2000: OPEN} | dict.fromkeys(range(2001, 2006), REFUSED))
    assert "; 2 more; see PATty's log" in many


@pytest.mark.parametrize(("attempt", "status"), [(MAX_TRIES - 1, "running"), (MAX_TRIES, "failed")])
def test_the_last_try_fails(attempt: int, status: str) -> None:
    step, probed = judge(SPECS, NOT_PROBED, {2000: REFUSED, 2001: SILENT}, attempt=attempt)
    assert (step.status, probed.refused) == (status, (2000,))
    assert [probed.says(port) for port in (2000, 2001)] == [False, None]
