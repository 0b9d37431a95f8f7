"""Files of whole labs: imported, started, and written again."""

from pathlib import Path

import pytest
import yaml

from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.definitions import added_definition
from lcm.simulator.cml.lab import State
from lcm.simulator.cml.topology import import_file, read_file, write_file
from support.labs_over_tls import simulated_cml

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "topologies").glob("*.yaml"))


OWN_KIND = {
    "general": {"nature": "server"},
    "device": {"interfaces": {"serial_ports": 1, "physical": ["eth0"]}},
    "sim": {"linux_native": {"libvirt_domain_driver": "kvm", "ram": 512, "cpus": 1}},
}
"""Of the definitions that no CML ships."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_lab_of_our_own_is_imported_starts_converges_and_is_written_again(path: Path) -> None:
    cml = simulated_cml()
    for name in ("my-router", "my-server-1.0"):
        cml.definitions[name] = added_definition({**OWN_KIND, "id": name})
    labs = cml.labs
    lab = import_file(labs, read_file(path.read_bytes()), 0.0, owner_id=ADMIN_ID, title="t")
    labs.start(lab, 0.0, ADMIN_ID)
    while (at := labs.next_change_at()) is not None:
        labs.advance(at)
    assert {node.state for node in lab.nodes.values()} == {State.BOOTED}
    assert lab.has_converged

    given, written = yaml.safe_load(path.read_bytes()), yaml.safe_load(write_file(lab))
    assert written["lab"]["notes"] == (given["lab"].get("notes") or "")
    for before, after in zip(given["nodes"], written["nodes"], strict=True):
        assert (after["x"], after["y"]) == (int(float(before["x"])), int(float(before["y"])))
        assert after["label"] == str(before["label"])
        for name in ("node_definition", "tags"):
            assert after[name] == (before.get(name) or []), name
    assert len(written["links"]) == len(given["links"])
    for name in ("annotations", "smart_annotations"):
        assert written.get(name, []) == given.get(name, [])
