"""Every command line of `lcm` in the documentation is one that `lcm` understands."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lcm.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PROMPT = r"^(?:\$|#) (?:[A-Z_]+=\S+ +)*(?:\S*/)?lcm "
COMMAND = re.compile(PROMPT + r"((?:\\\n|[^|>;&\n])*)", re.MULTILINE)
REDIRECTED = re.compile(r" [012]$")


def command_lines() -> list[Any]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), re.DOTALL):
            for line in COMMAND.findall(block):
                found.append(pytest.param(line, id=f"{page.stem}: {' '.join(line.split())[:60]}"))
    return found


def words_of(line: str) -> list[str]:
    """The words as a shell gives them; what stands for a value of the reader is a word like any other."""
    return shlex.split(REDIRECTED.sub("", line.replace("\\\n", " ")), comments=True)


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_in_the_documentation_is_understood(line: str) -> None:
    words = words_of(line)
    if words[0] in ("--version", "--install-completion"):
        return
    command: Any = typer.main.get_command(app)
    context = None
    while hasattr(command, "commands"):
        if words[0] == "--context":
            del words[:2]
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    context = command.make_context("lcm", words)
    context.close()


def test_the_documentation_has_command_lines() -> None:
    assert len(command_lines()) > 40
