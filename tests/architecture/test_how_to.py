"""What the how-to pages name exists: routes, settings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lcm.resource_scheduler.admin import scheduler_operations
from lcm.worker_controller.admin.http import worker_operations

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
OPENAPI = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())
CONFIGURATION = (ROOT / "docs" / "reference" / "configuration.md").read_text()
NOT_RUN: Any = None
CONTROLLER = {
    getattr(route, "path", "")
    for route in worker_operations(
        NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, "", metrics_collected=int, scale_down_enabled=False
    )
    .app()
    .routes
} | {
    getattr(route, "path", "")
    for route in scheduler_operations(NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, NOT_RUN, "").app().routes
}


def of_api(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)))


ROUTES = [of_api(path) for path in OPENAPI["paths"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_routes_in_how_to_pages_exist(page: Path) -> None:
    named = re.findall(r"/(?:api|admin)/[\w/{}$.-]*[\w}]", page.read_text())
    for path in named:
        if path.startswith("/admin/"):
            assert path in CONTROLLER, path
        elif not path.startswith("/api/v0") and path != "/api/openapi.json":  # those are CML's
            assert any(route.fullmatch(path) for route in ROUTES) or any(
                known.startswith(path + "/") for known in OPENAPI["paths"]
            ), path


@pytest.mark.parametrize(
    "name",
    [
        "choose-idle-settings",
        "import-an-existing-fleet",
        "connect-an-aws-account",
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
