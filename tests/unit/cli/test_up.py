"""What `lcm up` makes of a simulator that does not get ready."""

import threading
from contextlib import closing

import pytest

from lcm.cli.processes import StartFailed
from lcm.cli.simulator_child import SimulatorChild
from lcm.cli.up import ready_simulation
from support.virtual_time import VirtualTimeLoop


class SlowSimulator(SimulatorChild):
    """Never gets ready."""

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def read_ready_line(self) -> bytes:
        self.has_ended.wait()
        return b""

    def end(self) -> None:
        self.has_ended.set()


def test_a_simulator_that_takes_too_long_is_ended_and_reported_in_one_sentence() -> None:
    simulator = SlowSimulator()
    with (
        closing(VirtualTimeLoop()) as loop,
        pytest.raises(StartFailed, match="the simulator was not ready within 30 s"),
    ):
        loop.run_until_complete(ready_simulation(simulator))
    assert simulator.has_ended.is_set()
