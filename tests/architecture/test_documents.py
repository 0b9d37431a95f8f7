"""Modules, tests and folders that documents name exist, so that a move cannot leave a page behind."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcm.rest.lablet_access import COLUMNS

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


def test_the_sheet_of_a_class_in_the_tutorial_has_the_columns_of_the_sheet() -> None:
    tutorial = (ROOT / "docs" / "tutorial" / "first-class.md").read_text()
    assert re.findall(r"^seat,.*$", tutorial, re.MULTILINE) == [",".join(COLUMNS)]


# A file, or a function behind an arrow or a file, in the tables of the ways.
STEP = re.compile(r"`([\w/.-]+\.(?:py|tsx?))`|(?<=[`→] )([a-zA-Z_]\w+)(?= →| \(|;|,| \||$)")


def steps_of_the_ways() -> Iterator[tuple[str, str]]:
    """Yield each function with the file that the page places it in."""
    for row in (ROOT / "docs" / "explanation" / "ways.md").read_text().splitlines():
        file = ""
        for named, function in STEP.findall(row) if row.startswith("|") else ():
            file = named or file
            if file and function:
                yield file, function


def test_functions_on_the_ways_are_where_the_page_places_them() -> None:
    steps = set(steps_of_the_ways())
    assert len(steps) > 60
    missing = [
        (file, function)
        for file, function in sorted(steps)
        if not any(
            re.search(rf"\b{function}\b", (ROOT / name[1:]).read_text())
            for name in FILES
            if name.endswith("/" + file)
        )
    ]
    assert missing == []
