"""Before a session is READY its ports are tested; one that does not answer costs an address, not the lab."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.domain.lablet.lab import NOT_PROBED, LabStep, StepStatus
from lcm.domain.lablet.states import INSTANTIATING, PENDING_SCHEDULING, RUNNING, TERMINATED
from lcm.domain.lifecycle import TERMINATED as WORKER_TERMINATED
from lcm.simulator.cml.server import ServerOptions
from support.lablet_bench import LAB, Killed, LabletBench

OFF = ServerOptions(people=False, patty=False)
ON = ServerOptions(people=False)


@pytest.fixture
async def bench() -> LabletBench:
    return await LabletBench().open()


async def until_probing(bench: LabletBench) -> None:
    for _ in range(100):
        if bench.ports.tries:
            return
        await bench.step()
    raise AssertionError("no port was tested")


async def reachable(bench: LabletBench) -> Any:
    given = (await bench.operator.get(f"/api/lablet-sessions/{bench.session_id}/access")).body
    return given["ports"][0]["is_reachable"], given["probed_at"] is not None


async def test_a_session_is_ready_when_its_ports_are_open(bench: LabletBench) -> None:
    session = await bench.drive(RUNNING)
    assert session.steps[LabStep.PROBE].status is StepStatus.COMPLETED
    assert bench.ports.tries == [[session.ports["pc1_serial"]]]
    assert await reachable(bench) == (True, True)


async def test_where_patty_is_off_the_session_is_ready_after_a_minute_and_says_so(bench: LabletBench) -> None:
    bench.cml.server_options = OFF
    await until_probing(bench)
    begun = bench.clock.now()  # the second try
    session = await bench.drive(RUNNING)
    step = session.steps[LabStep.PROBE]
    assert (step.status, step.attempts, len(bench.ports.tries)) == (StepStatus.FAILED, 12, 12)
    assert step.detail.startswith("PATty is off on this worker")
    assert session.ready_at is not None
    assert session.ready_at - begun == timedelta(seconds=50)
    assert await reachable(bench) == (False, True)


async def test_a_port_that_opens_while_it_is_tested_makes_the_session_ready(bench: LabletBench) -> None:
    bench.cml.server_options = OFF
    await until_probing(bench)
    await bench.step()
    running = (await bench.session()).steps[LabStep.PROBE]
    assert (running.status, running.attempts) == (StepStatus.RUNNING, 2)
    assert "PATty is off" in running.detail
    bench.cml.server_options = ON
    session = await bench.drive(RUNNING)
    assert (session.steps[LabStep.PROBE].status, len(bench.ports.tries)) == (StepStatus.COMPLETED, 3)


async def test_ports_that_do_not_answer_are_neither_reachable_nor_unreachable(bench: LabletBench) -> None:
    bench.ports.servers = {}
    session = await bench.drive(RUNNING)
    assert session.steps[LabStep.PROBE].status is StepStatus.FAILED
    assert "PROBE_PORTS=false" in session.steps[LabStep.PROBE].detail
    assert (await reachable(bench))[0] is None


async def test_only_ports_that_were_not_open_are_tested_again() -> None:
    class TwoPorts(LabletBench):
        lab_yaml = LAB.replace("['serial:5001']", "['serial:5001', 'serial:5002:9']")

    bench = TwoPorts()
    await bench.open()
    session = await bench.drive(RUNNING)
    ports = session.ports
    [first, *others] = bench.ports.tries
    assert first == sorted(ports.values())
    assert others == [[ports["pc1_serial_9"]]] * 11
    assert "port pc1_serial_9 refuses connections" in session.steps[LabStep.PROBE].detail
    given = (await bench.operator.get(f"/api/lablet-sessions/{bench.session_id}/access")).body["ports"]
    assert [each["is_reachable"] for each in given] == [True, False]


async def test_without_a_probe_the_step_is_skipped_and_nothing_is_known(bench: LabletBench) -> None:
    bench.port_probe = None
    await bench.restart_controller()
    session = await bench.drive(RUNNING)
    assert session.steps[LabStep.PROBE].status is StepStatus.SKIPPED
    assert await reachable(bench) == (None, False)


async def test_a_lab_without_ports_is_ready_at_once() -> None:
    class NoPorts(LabletBench):
        lab_yaml = LAB.replace("['serial:5001']", "[]")

    bench = NoPorts()
    await bench.open()
    session = await bench.drive(RUNNING)
    assert (LabStep.PROBE in session.steps, bench.ports.tries) == (False, [])


async def test_a_controller_that_dies_between_two_tries_does_not_begin_anew(bench: LabletBench) -> None:
    bench.cml.server_options = OFF

    def die(number: int, name: str, is_done: bool) -> None:
        if name == "report_progress" and bench.ports.tries and is_done and number % 2:
            raise Killed

    bench.disturb = die
    session = await bench.drive(RUNNING)
    assert (session.steps[LabStep.PROBE].status, len(bench.ports.tries)) == (StepStatus.FAILED, 12)


async def test_a_session_that_is_ended_or_loses_its_worker_waits_for_no_port(bench: LabletBench) -> None:
    bench.cml.server_options = OFF
    await until_probing(bench)
    await bench.end()
    assert (await bench.drive(TERMINATED)).lab is not None
    assert len(bench.ports.tries) == 1


async def test_another_placement_begins_with_unknown_ports(bench: LabletBench) -> None:
    bench.cml.server_options = OFF
    await until_probing(bench)
    assert (await bench.session()).probed != NOT_PROBED
    assert (await bench.session()).status is INSTANTIATING
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_TERMINATED, claims=()))
    session = await bench.drive(PENDING_SCHEDULING)
    assert session.probed == NOT_PROBED
