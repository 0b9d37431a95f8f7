"""The quick way to a command means the same as Typer's, and leaves to Typer what it does not understand."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lcm.cli.app import VERBS
from lcm.cli.quick import call_of

PLAIN = [
    "get workers",
    "get workers a b -o json",
    "get workers -l team=x -l y --output wide --watch",
    "get --selector=team=x workers",
    "describe a",
    "explain session/x y -o yaml",
    "events",
    "events a -f --type worker.lab --type lab --since b-1",
    "stop a b --wait --timeout 5m",
    "stop --all --dry-run",
    "hold a --for 4h --reason exam",
    "delete session x -y",
    "wait a --for stopped",
    "license a --release",
    "login http://x --token-stdin --name y",
    "logout",
    "cost --by region",
]
UNUSUAL = [
    "",
    "--help",
    "up",
    "get",
    "get workers --help",
    "get workers -ojson",
    "get workers --nonsense",
    "get workers -o",
    "get workers -o -w",
    "describe",
    "stop -- -a",
    "login http://x y",
    "stop a --wait=yes",
]


def recorded(name: str, into: list[dict[str, Any]]) -> Callable[..., None]:
    """A command that takes what the one of this name takes, and does nothing but remember it."""

    @wraps(VERBS[name])
    def record(**values: Any) -> None:
        into.append(values)

    return record


def defaults_of(name: str) -> dict[str, Any]:
    return {
        parameter.name: parameter.default
        for parameter in signature(VERBS[name]).parameters.values()
        if parameter.default is not parameter.empty
    }


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_command_line_means_the_same_in_both_ways(line: str) -> None:
    name, *arguments = line.split()
    seen: list[dict[str, Any]] = []
    command = recorded(name, seen)
    quick = call_of({name: command}, [name, *arguments])
    assert quick is not None
    quick()
    app = typer.Typer()
    app.command(name)(command)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    by_quick, by_typer = ({**defaults_of(name), **values} for values in seen)
    assert by_quick == by_typer


@pytest.mark.parametrize("line", UNUSUAL)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert call_of(VERBS, line.split()) is None
