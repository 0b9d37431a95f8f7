"""What `lcm up` does before its processes start."""

import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from lcm.cli.processes import StartFailed
from lcm.cli.simulator_child import SimulatorChild
from lcm.cli.up import UpOptions, data_dir_for, ready_simulation
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


def test_no_other_user_of_the_host_can_look_into_a_new_data_directory(tmp_path: Path) -> None:
    options = UpOptions(0, 0, 0, 0, tmp_path / "new", 0, 0, None, None, None)
    with data_dir_for(options, is_simulated=True) as data_dir:
        (data_dir / "tls").mkdir()
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
