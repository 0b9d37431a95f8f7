"""Modules, tests and folders that documents name exist, so that a move cannot leave a page behind."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The changelog names what existed at its time.
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return ["/" + name for name in listed.stdout.split("\0") if name]


FILES = tracked()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_documents_name_exist(page: Path) -> None:
    named = re.findall(r"`([\w./-]+\.(?:py|tsx?))(?:::[\w:]+)?`", page.read_text())
    assert [name for name in named if not any(file.endswith("/" + name) for file in FILES)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_folders_that_documents_name_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|deploy|tools|benchmarks|ui)/[\w./-]*/)`", page.read_text())
    assert [name for name in named if not (ROOT / name).is_dir()] == []
