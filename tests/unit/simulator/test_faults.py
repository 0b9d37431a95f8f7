"""Faults on demand: which calls they strike, and how often."""

import threading

from lcm.simulator.aws.faults import Fault, Faults


def strikes(faults: Faults, operation: str = "StopInstances", instance_id: str = "i-1") -> bool:
    return faults.strike(operation, [instance_id]) is not None


def test_a_fault_affects_its_operation_as_often_as_configured() -> None:
    faults = Faults()
    faults.add(Fault(operation="StopInstances", kind="error", count=2))
    assert not strikes(faults, "StartInstances")
    assert [strikes(faults) for _ in range(3)] == [True, True, False]


def test_a_fault_for_an_instance_strikes_only_calls_that_name_it() -> None:
    faults = Faults()
    faults.add(Fault(operation="StopInstances", kind="error", instance_id="i-1"))
    assert not strikes(faults, instance_id="i-2")
    assert strikes(faults, instance_id="i-1")


def test_the_older_of_two_faults_strikes_first() -> None:
    faults = Faults()
    faults.add(Fault(operation="StopInstances", kind="error", code="first"))
    faults.add(Fault(operation="StopInstances", kind="error", code="second"))
    codes = [strike.fault.code for strike in (faults.strike("StopInstances", []) for _ in range(2)) if strike]
    assert codes == ["first", "second"]


def test_clearing_lets_go_of_those_who_wait() -> None:
    faults = Faults()
    faults.add(Fault(operation="StopInstances", kind="hang", count=None))
    strike = faults.strike("StopInstances", [])
    assert strike is not None
    waiting = threading.Thread(target=strike.wait, daemon=True)
    waiting.start()
    faults.clear()
    waiting.join(timeout=5)
    assert not waiting.is_alive()
    assert not strikes(faults)
