"""Every command line of `lcm` in the documentation is one that `lcm` understands."""

from typing import Any

import pytest
import typer.main

from lcm.cli.app import app
from support.documented import PAGES, command_lines, words_of

LINES = [
    pytest.param(line, id=f"{page.stem}: {' '.join(line.split())[:60]}")
    for page in PAGES
    for line in command_lines(page)
]


@pytest.mark.parametrize("line", LINES)
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
    assert len(LINES) > 40
