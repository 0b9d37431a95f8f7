"""What holds for the whole tree, beyond what linters check."""

import ast
import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest
from tools.generate_docs import REFERENCE, documents

from lcm.core.controller import WatchTriggeredHostedService

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


@pytest.mark.parametrize("name", documents())
def test_the_generated_reference_is_up_to_date(name: str) -> None:
    assert (REFERENCE / name).read_text() == documents()[name], "run 'make docs'"


@pytest.mark.parametrize("name", ["openapi.json", "openapi-internal.json"])
def test_every_schema_that_an_openapi_document_refers_to_has_one_plain_name(name: str) -> None:
    text = documents()[name]
    defined = set(json.loads(text)["components"]["schemas"])
    assert [name for name in defined if not name.isidentifier()] == [], "two structs have the same name"
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= defined


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_every_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "a module docstring is missing"


def test_no_lock_file_names_a_host() -> None:
    for name in (*(path.name for path in ROOT.glob("*.lock")), "ui/package-lock.json"):
        text = (ROOT / name).read_text()
        assert '"resolved"' not in text
        assert not re.search(r"https?://[^\s\"/]*(pypi|npm|registry|python)", text), name


def test_no_tracked_file_is_built_or_vendored() -> None:
    built = [p for p in tracked_files() if {"node_modules", "static", ".venv", "dist"} & set(p.parts)]
    assert built == []


MISSION, SECURITY, LIMITS = (
    ROOT / "docs" / name for name in ("mission.md", "explanation/security.md", "reference/limits.md")
)


def test_every_ticked_line_of_the_mission_names_a_test() -> None:
    lines = MISSION.read_text().splitlines()
    ticked = [line for line in lines if line.lstrip().startswith("- [x]")]
    assert ticked
    assert [line for line in ticked if "::test_" not in line and "::Test" not in line] == []


@pytest.mark.parametrize("page", [SECURITY, LIMITS], ids=lambda page: page.stem)
def test_everything_that_is_forbidden_or_limited_names_a_test(page: Path) -> None:
    rows = [line for line in page.read_text().splitlines() if re.match(r"\| (?!\w+ \|)", line)]
    assert len(rows) >= 15
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize("page", [MISSION, SECURITY, LIMITS], ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/.-]+\.py::[\w:]+)`", page.read_text())
    assert named
    missing = []
    for reference in named:
        path, *names = reference.split("::")
        text = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        if not all(re.search(rf"(def|class) {name}\b", text) for name in names):
            missing.append(reference)
    assert missing == []


def test_the_worker_controller_never_names_cmls_labs_api() -> None:
    for path in (ROOT / "src" / "lcm" / "worker_controller").rglob("*.py"):
        assert "/labs" not in path.read_text(), path


def test_the_control_plane_never_names_aws_or_cml_endpoints() -> None:
    for path in (ROOT / "src" / "lcm" / "control_plane").rglob("*.py"):
        text = path.read_text()
        assert "/api/v0" not in text, path
        assert "amazonaws" not in text, path


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if not target.startswith(("http:", "https:", "mailto:")) and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)} -> {target}")
    assert broken == []


CONTROLLERS = ("worker_controller", "resource_scheduler", "lablet_controller")


def test_all_three_controllers_run_on_the_core() -> None:
    """Reconcile loop, election and key watch are those of the core."""
    for name, parts in zip(
        CONTROLLERS, ("WorkerController", "ResourceScheduler", "LabletController"), strict=True
    ):
        service = get_type_hints(getattr(import_module(f"lcm.{name}.main"), parts))["service"]
        assert issubclass(get_origin(service) or service, WatchTriggeredHostedService), name


def test_controllers_write_to_the_coordination_store_only_to_be_elected() -> None:
    """Their election is in the core; in their own code nothing is put or deleted there.

    The gate of the lablet controller deletes labs, not keys.
    """
    writes = {"put", "put_if_absent", "grant_lease", "delete", "keep_alive", "revoke_lease"}
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for name in CONTROLLERS
        for path in (ROOT / "src" / "lcm" / name).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in writes
        and ast.unparse(node.func) != "self.gate.delete"
    ]
    assert calls == []


def test_only_the_control_plane_has_commands_and_queries() -> None:
    found = {
        path.parent.name
        for path in (ROOT / "src" / "lcm").glob("*/*")
        if path.stem in ("commands", "queries")
    }
    assert found == {"control_plane"}


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_a_benchmark_that_has_options_can_end_with_one_json_object(path: Path) -> None:
    text = path.read_text()
    assert "parse_args()" not in text or '"--json"' in text
