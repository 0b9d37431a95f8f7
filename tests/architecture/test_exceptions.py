"""Exceptions from what linters and type checkers demand are counted: their number only goes down."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ("src", "tests", "benchmarks", "tools")
DASHBOARD = ("ui/src", "ui/tests")

# How many there are, by the comment that makes one.
RECORDED = {
    "noqa": 38,
    "type: ignore": 28,
    "whole file exempt": 0,
    "no cover": 0,
    "@ts-ignore": 0,
    "@ts-expect-error": 0,
    "@ts-nocheck": 0,
    "linter of the dashboard": 0,
}
COMMENTS = {
    "noqa": (PYTHON, r"#\s*noqa\b"),
    "type: ignore": (PYTHON, r"#\s*type:\s*ignore\b"),
    "whole file exempt": (PYTHON, r"#\s*(?:ruff|flake8|mypy):\s*\w"),
    "no cover": (PYTHON, r"#\s*pragma:\s*no\s*(?:cover|branch)\b"),
    "@ts-ignore": (DASHBOARD, r"@ts-ignore\b"),
    "@ts-expect-error": (DASHBOARD, r"@ts-expect-error\b"),
    "@ts-nocheck": (DASHBOARD, r"@ts-nocheck\b"),
    "linter of the dashboard": (
        DASHBOARD,
        r"\b(?:eslint|oxlint)-disable\b|\bbiome-ignore\b|\bprettier-ignore\b",
    ),
}
# Functions that are more complex than the rule allows, in the files that pyproject.toml lists.
TOO_COMPLEX = 1


def sources(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".ts", ".tsx"):
                yield path


def exceptions(kind: str) -> list[str]:
    folders, pattern = COMMENTS[kind]
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(folders)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for _ in re.finditer(pattern, line)
    ]


@pytest.mark.parametrize("kind", COMMENTS)
def test_no_exception_from_a_linter_or_type_checker_is_added(kind: str) -> None:
    found, recorded = exceptions(kind), RECORDED[kind]
    assert len(found) <= recorded, f"do without the new one, the number must not grow: {found}"
    assert len(found) == recorded, f"fewer than before: set RECORDED[{kind!r}] to {len(found)}"


def ruff_settings() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]


def too_complex() -> list[tuple[str, str]]:
    """File and function of all that is more complex than the rule allows, whatever is exempt from it."""
    limit = ruff_settings()["mccabe"]["max-complexity"]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", "--output-format=json"]
    rule = ["--select=C901", f"--config=lint.mccabe.max-complexity={limit}"]
    told = subprocess.run([*command, *rule, *PYTHON], cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(told.stdout)
    return [(Path(one["filename"]).relative_to(ROOT).as_posix(), one["message"]) for one in found]


def test_the_list_of_files_with_a_too_complex_function_is_exact_and_does_not_grow() -> None:
    settings = ruff_settings()
    assert settings["mccabe"]["max-complexity"] <= 12
    listed = {path for path, rules in settings["per-file-ignores"].items() if "C901" in rules}
    found = too_complex()
    needed = {path for path, _ in found}
    assert listed - needed == set(), "nothing there is too complex any more: remove it from per-file-ignores"
    assert needed - listed == set(), f"make it simpler: {found}"
    assert len(found) <= TOO_COMPLEX, f"make the new one simpler, the number must not grow: {found}"
    assert len(found) == TOO_COMPLEX, f"fewer than before: set TOO_COMPLEX to {len(found)}"
