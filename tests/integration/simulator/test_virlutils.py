"""Cisco's command line for CML, unchanged, against a simulated server.

Its dependencies are not ours, so it runs from a directory of its own, filled by `make test`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lcm.simulator.main import SimulatedWorker
from support.patience import PATIENCE_SECONDS
from support.processes import running_simulator

CML = 'from virl.cli.main import virl; virl(prog_name="cml")'

TOPOLOGY = """
lab: {title: two hosts, description: of a command line, notes: '', version: 0.3.0}
nodes:
- {id: n0, label: left, node_definition: alpine, x: 0, y: 0, interfaces: []}
- {id: n1, label: right, node_definition: alpine, x: 9, y: 0, interfaces: []}
links: []
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[SimulatedWorker]:
    with running_simulator("--workers", "1", "--no-people") as running:
        [worker] = running.info.workers
        yield worker


def run(worker: SimulatedWorker, directory: Path, *commands: str) -> list[str]:
    """What each command prints; one that fails fails the test."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": str(Path(sys.prefix) / "virlutils"),
        "COLUMNS": "200",
        "VIRL_HOST": urlsplit(worker.url).netloc,
        "VIRL_USERNAME": worker.username,
        "VIRL_PASSWORD": worker.password,
        "CML_VERIFY_CERT": "false",
    }
    outputs = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CML, *command.split()],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert "Exception raised" not in done.stdout + done.stderr, (command, done.stdout, done.stderr)
        outputs.append(done.stdout)
    return outputs


def test_a_lab_is_started_saved_and_removed_from_the_command_line(
    worker: SimulatedWorker, tmp_path: Path
) -> None:
    (tmp_path / "lab.yaml").write_text(TOPOLOGY)
    _, labs, nodes, _, _, _, gone = run(
        worker,
        tmp_path,
        "up -f lab.yaml",
        "ls",
        "nodes",
        "save -f saved.yaml",
        "down",
        "rm --force --no-confirm",
        "ls",
    )
    assert "two hosts" in labs
    assert nodes.count("alpine") == 2
    assert "node_definition: alpine" in (tmp_path / "saved.yaml").read_text()
    assert "two hosts" not in gone


def test_definitions_and_license_are_shown_on_the_command_line(
    worker: SimulatedWorker, tmp_path: Path
) -> None:
    nodes, images, license = run(
        worker, tmp_path, "definitions nodes ls", "definitions images ls", "license show"
    )
    assert "unmanaged_switch" in nodes
    assert "alpine" in images
    assert "CML - Enterprise License" in license
