"""A fleet from files at a terminal, beside a running LCM: apply, diff, delete -f."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lcm.client import Lcm
from lcm.core.blocking_clock import BlockingClock
from support.patience import PATIENCE_SECONDS
from support.processes import Ended, RunningLcm, lcm_to_its_end
from support.topologies import TWO_ALPINES

PATIENCE = f"{PATIENCE_SECONDS:.0f}s"
FLEET = """\
kind: worker
name: first
template_name: small
tags:
  team: ccna
---
kind: definition
name: two-hosts
topology_file: two-hosts.yaml
---
kind: class
name: monday
definition: two-hosts
count: 2
timeslot:
  start: {start}
  end: {end}
"""


@pytest.fixture(autouse=True)
def context(lcm: RunningLcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LCM_URL", lcm.url)
    monkeypatch.setenv("LCM_TOKEN", lcm.ready.token)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A directory with a fleet file, and the topology that it names beside it."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "two-hosts.yaml").write_text(TWO_ALPINES)
    start = (BlockingClock().now() + timedelta(days=2)).astimezone(UTC).replace(microsecond=0)
    times = {"start": text_of(start), "end": text_of(start + timedelta(hours=1))}
    (folder / "fleet.yaml").write_text(FLEET.format(**times))
    return folder / "fleet.yaml"


def text_of(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def ended(code: int, *arguments: str) -> Ended:
    done = lcm_to_its_end(*arguments)
    assert done.code == code, done
    assert "Traceback" not in done.stderr
    return done


def test_a_fleet_is_applied_compared_changed_and_deleted(lcm: RunningLcm, fleet: Path) -> None:
    differing = ended(1, "diff", "-f", str(fleet.parent)).stdout
    assert "+ definition/two-hosts  version 1.0.0" in differing
    assert "+ worker/first  of template small" in differing
    assert "cost per hour: $0.00 now, $0.02 afterwards" in differing
    assert ended(0, "apply", "-f", str(fleet.parent), "--dry-run").stdout == differing
    made = ended(0, "apply", "-f", str(fleet.parent), "--wait", "--timeout", PATIENCE).stdout
    assert made.splitlines() == [
        "definition/two-hosts created",
        "worker/first created",
        "class/monday created",
        "worker/first ready",
    ]
    assert ended(0, "diff", "-f", str(fleet.parent)).stdout == ""
    assert ended(0, "apply", "-f", str(fleet.parent)).stdout == ""
    with Lcm(lcm.url, lcm.ready.token) as client:
        client.workers.tag("first", {"team": "ccnp"})
    assert "    tags.team: ccnp -> ccna\n" in ended(1, "diff", "-f", str(fleet.parent)).stdout
    steps = json.loads(ended(1, "diff", "-f", str(fleet.parent), "-o", "json").stdout)["steps"]
    assert [step["name"] for step in steps if step["action"] == "change"] == ["first"]
    assert ended(0, "apply", "-f", str(fleet.parent)).stdout == "worker/first changed\n"
    stopping = f"{fleet.read_text().partition('---')[0]}desired_status: stopped\n"
    command = [str(Path(sys.executable).with_name("lcm")), "apply", "-f", "-"]
    done = subprocess.run(command, input=stopping, capture_output=True, text=True, check=True)
    assert done.stdout == "worker/first changed\n"
    kept = fleet.with_name("kept.yaml")
    kept.write_text(FLEET.split("---\n")[1])
    asked = ended(2, "apply", "-f", str(kept), "--prune")
    assert "- worker/first  it is in no document of its set" in asked.stderr
    assert "Confirm it with --yes" in asked.stderr
    kept.unlink()
    gone = ended(0, "delete", "-f", str(fleet.parent), "--yes", "--wait", "--timeout", PATIENCE).stdout
    assert gone.splitlines()[:2] == ["class/monday deleted", "worker/first deleted"]
    assert gone.splitlines()[-1] == "worker/first deleted"
    assert ended(0, "delete", "-f", str(fleet.parent), "--yes").stdout == ""


def test_whatever_is_wrong_is_said_with_file_line_and_field_and_nothing_is_changed(
    lcm: RunningLcm, fleet: Path
) -> None:
    wrong = fleet.read_text().replace("team: ccna", "aws:team: ccna").replace("count: 2", "count: two")
    fleet.write_text(wrong)
    for code, verb in ((1, "apply"), (2, "diff")):
        said = ended(code, verb, "-f", str(fleet.parent)).stderr
        assert f"{fleet}:5: tags.aws:team: tag keys that begin with 'aws:'" in said
        assert f"{fleet}:14: count: expected `int`, got `str`" in said
    with Lcm(lcm.url, lcm.ready.token) as client:
        assert client.definitions.list_all() == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: worker\nname: [\n", "fleet.yaml:3: YAML: "),
        ("- kind: worker\n", "fleet.yaml: document 1: it must be a mapping"),
        ("kind: worker\nname: a\nname: b\n", "fleet.yaml:3: name: it is given twice"),
        (
            "kind: definition\nname: a\ntopology_file: no.yaml\n",
            "fleet.yaml:3: topology_file: cannot read {folder}/no.yaml: No such file or directory",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_a_usage_error(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    for verb in ("apply", "diff"):
        assert says.format(folder=tmp_path) in ended(2, verb, "-f", str(file)).stderr


def test_a_directory_without_files_and_a_file_that_is_not_there_are_usage_errors(tmp_path: Path) -> None:
    assert "has no .yaml file" in ended(2, "apply", "-f", str(tmp_path)).stderr
    assert "cannot read no.yaml" in ended(2, "diff", "-f", "no.yaml").stderr
    assert "with -f the files name" in ended(2, "delete", "first", "-f", "no.yaml").stderr
