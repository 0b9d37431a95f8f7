"""Every command has a page for `man`, the pages are up to date, and troff has nothing to complain about."""

import shutil
import subprocess

import pytest
import typer.main
from tools.generate_cli import commands
from tools.generate_man import MAN, pages

from lcm.cli.app import app

PAGES = pages()
TROFF = shutil.which("groff")


def test_the_man_pages_are_up_to_date() -> None:
    assert {path.name: path.read_text() for path in MAN.iterdir()} == PAGES, "run 'make docs'"


def test_every_command_has_a_man_page_with_its_name() -> None:
    found = [name for name, _ in commands(typer.main.get_command(app), "lcm")]
    assert "lcm create worker" in found
    for name in found:
        page = PAGES[f"lcm-{name.split()[1]}.1"]
        assert "\\fB" + name.replace("-", "\\-") + "\\fR" in page, name


@pytest.mark.skipif(TROFF is None, reason="there is no groff on this machine")
@pytest.mark.parametrize("name", PAGES)
def test_troff_reads_a_man_page_without_a_warning(name: str) -> None:
    command = [str(TROFF), "-man", "-ww", "-Tutf8", "-Kutf8", "-P-cbou"]
    done = subprocess.run(command, input=PAGES[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SYNOPSIS" in done.stdout
