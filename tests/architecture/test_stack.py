"""What docs/explanation/stack.md states about dependencies holds: all are named, with the locked versions."""

import json
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
STACK = (ROOT / "docs" / "explanation" / "stack.md").read_text()
ROWS = [line.split("|")[1:-1] for line in STACK.splitlines() if re.match(r"\| [^-]", line)]


def needs_of_lcm() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return [each for each in needed if not each.startswith("lablet-cloud-manager[")]


def needs_of_tests(group: str = "dev") -> list[str]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][group]
    included = [each["include-group"] for each in listed if isinstance(each, dict)]
    return [each for each in listed if isinstance(each, str)] + list(chain(*map(needs_of_tests, included)))


def direct_dependencies() -> list[str]:
    names = [re.split(r"[\[<>=; ]", each)[0] for each in (*needs_of_lcm(), *needs_of_tests())]
    ui = json.loads((ROOT / "ui" / "package.json").read_text())
    return sorted({*names, *ui["dependencies"], *ui["devDependencies"]})


def locked_versions() -> dict[str, str]:
    python = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    ui = json.loads((ROOT / "ui" / "package.json").read_text())
    ferretdb = re.findall(r"/(FerretDB) v([\d.]+)", (ROOT / "tools" / "ferretdb" / "go.mod").read_text())
    return {**dict(python), **ui["dependencies"], **ui["devDependencies"], **dict(ferretdb)}


def is_named(dependency: str, text: str) -> bool:
    return re.search(rf"(?<![\w@/-]){re.escape(dependency)}(?![\w-])", text) is not None


def test_the_lowest_versions_that_are_allowed_are_those_that_make_lowest_tests() -> None:
    lock = (ROOT / "requirements-lowest.lock").read_text()
    tested = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    allowed = {}
    for requirement in map(Requirement, (*needs_of_lcm(), *needs_of_tests("unit"))):
        bounds = [each.version for each in requirement.specifier if each.operator in (">=", "==")]
        assert bounds, f"{requirement.name} has no lower bound"
        allowed[requirement.name.lower()] = Version(bounds[0])
    assert {name: Version(tested[name]) for name in allowed} == allowed, "run 'make lock', then 'make lowest'"


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
