"""There is one version: that of the package."""

import json
import re
from pathlib import Path

import pytest
import yaml

from lcm import VERSION

ROOT = Path(__file__).parents[2]
CHART = yaml.safe_load((ROOT / "deploy" / "helm" / "lcm" / "Chart.yaml").read_text())


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(CHART["version"], id="chart"),
        pytest.param(CHART["appVersion"], id="image of the chart"),
        pytest.param(json.loads((ROOT / "ui" / "package.json").read_text())["version"], id="dashboard"),
        pytest.param(
            json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())["info"]["version"],
            id="API",
        ),
    ],
)
def test_what_has_a_version_has_that_of_the_package(version: str) -> None:
    assert version == VERSION


def test_hatchling_takes_the_version_from_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    pattern = re.search(r"^pattern = '(.*)'$", project, re.MULTILINE)
    assert pattern is not None
    found = re.search(pattern[1], (ROOT / "src" / "lcm" / "__init__.py").read_text())
    assert found is not None
    assert found["version"] == VERSION


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert f"## [{VERSION}] - " in (ROOT / "CHANGELOG.md").read_text()
