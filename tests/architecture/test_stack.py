"""What docs/explanation/stack.md states about dependencies holds: all are named, with the locked versions."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STACK = (ROOT / "docs" / "explanation" / "stack.md").read_text()
ROWS = [line.split("|")[1:-1] for line in STACK.splitlines() if re.match(r"\| [^-]", line)]


def direct_dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra in project["project"]["optional-dependencies"].values():
        needed += [each for each in extra if not each.startswith("lablet-cloud-manager[")]
    names = [re.split(r"[\[<>=; ]", each)[0] for each in needed]
    ui = json.loads((ROOT / "ui" / "package.json").read_text())
    return sorted({*names, *ui["dependencies"], *ui["devDependencies"]})


def locked_versions() -> dict[str, str]:
    python = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    ui = json.loads((ROOT / "ui" / "package.json").read_text())
    ferretdb = re.findall(r"/(FerretDB) v([\d.]+)", (ROOT / "tools" / "ferretdb" / "go.mod").read_text())
    return {**dict(python), **ui["dependencies"], **ui["devDependencies"], **dict(ferretdb)}


def is_named(dependency: str, text: str) -> bool:
    return re.search(rf"(?<![\w@/-]){re.escape(dependency)}(?![\w-])", text) is not None


@pytest.mark.parametrize("dependency", direct_dependencies())
def test_every_direct_dependency_has_a_row_in_the_stack(dependency: str) -> None:
    assert any(is_named(dependency, row[0]) for row in ROWS), "give its reason in docs/explanation/stack.md"


def test_versions_in_the_stack_are_the_locked_ones() -> None:
    locked = locked_versions()
    stated = {
        (version, tuple(sorted(locked[name] for name in locked if is_named(name, row[0]))))
        for row in ROWS
        for version in re.findall(r"\b\d+\.\d+\.\d+\b", " ".join(row[:2]))
    }
    assert stated
    assert {(version, versions) for version, versions in stated if version not in versions} == set()
