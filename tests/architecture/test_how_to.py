"""What the how-to pages name exists: routes, settings, commands with their options."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.session import get_session

from lcm.resource_scheduler.admin import scheduler_operations
from lcm.worker_controller.admin.http import worker_operations

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PATHS = [
    path
    for name in ("openapi.json", "openapi-internal.json")
    for path in json.loads((ROOT / "docs" / "reference" / name).read_text())["paths"]
]
CONFIGURATION = (ROOT / "docs" / "reference" / "configuration.md").read_text()
NOT_RUN: Any = None
CONTROLLER = {
    getattr(route, "path", "")
    for route in worker_operations(
        NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, metrics_collected=int, scale_down_enabled=False
    )
    .app()
    .routes
} | {
    getattr(route, "path", "")
    for route in scheduler_operations(NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN).app().routes
}


def of_api(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)))


ROUTES = [of_api(path) for path in PATHS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_routes_in_how_to_pages_exist(page: Path) -> None:
    named = re.findall(r"/(?:api|admin)/[\w/{}$.-]*[\w}]", page.read_text())
    for path in named:
        if path.startswith("/admin/"):
            assert path in CONTROLLER, path
        elif not path.startswith("/api/v0") and path != "/api/openapi.json":  # those are CML's
            assert any(route.fullmatch(path) for route in ROUTES) or any(
                known.startswith(path + "/") for known in PATHS
            ), path


@pytest.mark.parametrize(
    "name",
    [
        "choose-idle-settings",
        "import-an-existing-fleet",
        "connect-an-aws-account",
        "from-a-bare-aws-account",
        "license-a-fleet",
        "schedule-labs",
        "give-access",
        "read-a-waiting-session",
        "handle-leaked-labs",
    ],
)
def test_settings_in_how_to_pages_exist(name: str) -> None:
    text = (ROOT / "docs" / "how-to" / f"{name}.md").read_text()
    for setting in re.findall(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)(?:=[^`]*)?`", text):
        assert setting in CONFIGURATION or setting == "AWS_PROFILE", setting  # that is boto's


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments of each command line of a program; a line that goes on is indented."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for line in re.sub(r"(?:\\)?\n +", " ", block).splitlines():
            if line.startswith("$ "):
                words = shlex.split(line[2:], comments=True)
                if words and words[0].rpartition("/")[2] == program:
                    yield list(takewhile(lambda word: not re.fullmatch(r"&|\||\d?>+", word), words[1:]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_aws_commands_in_how_to_pages_exist_with_their_options(page: Path) -> None:
    for service, command, *rest in commands(page, "aws"):
        model = get_session().get_service_model(service)
        names = {xform_name(name, "-"): name for name in model.operation_names}
        parameters = model.operation_model(names[command]).input_shape.members
        known = {f"--{xform_name(name, '-')}" for name in parameters}
        assert {word for word in rest if word.startswith("--")} <= known, command
