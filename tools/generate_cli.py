"""The reference of the command line, from the commands themselves; `generate_docs` writes it."""

import io
from collections.abc import Iterator
from typing import Any

import typer.main

from lcm.cli.app import app
from lcm.cli.terminal import MEANING

HIDDEN = ("--help", "--install-completion", "--show-completion")


def command_line() -> str:
    """Return the page: every command with its arguments and options, in the groups of `lcm --help`."""
    root = typer.main.get_command(app)
    out = io.StringIO()
    out.write("# Command line\n\n")
    out.write("`lcm --help` and `lcm COMMAND --help` show the same.\n")
    out.write("`lcm --install-completion` completes commands.\n")
    out.write("How to use it: [use the command line](../how-to/use-the-command-line.md).\n")
    out.write("\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
    for code, meaning in MEANING.items():
        out.write(f"| {code.value} | {meaning} |\n")
    panel = None
    found = list(_commands(root, "lcm"))
    panels = list(dict.fromkeys(_panel(command) for _, command in found))
    for name, command in sorted(found, key=lambda each: panels.index(_panel(each[1]))):
        if _panel(command) != panel:
            panel = _panel(command)
            out.write(f"\n## {panel}\n")
        _write(out, name, command)
    return out.getvalue()


def _commands(group: Any, name: str, panel: str | None = None) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        if command.hidden:
            continue
        command.rich_help_panel = panel or command.rich_help_panel or "Other"
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}", command.rich_help_panel)
        else:
            yield f"{name} {word}", command


def _panel(command: Any) -> str:
    return str(command.rich_help_panel)


def _write(out: io.StringIO, name: str, command: Any) -> None:
    shown = [each for each in command.params if not each.hidden and not set(each.opts) & set(HIDDEN)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_metavar, arguments)])
    out.write(f"\n### {name}\n\n`{usage}`\n\n{command.help}\n")
    if not shown:
        return
    out.write("\n| argument or option | default | meaning |\n|---|---|---|\n")
    for each in shown:
        written = _metavar(each) if each in arguments else _written(each)
        out.write(f"| `{written}` | {_default(each)} | {(each.help or '').replace('|', '/')} |\n")


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _written(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.secondary_opts:
        return f"{names} / {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value is True or callable(value) or value == ():
        return "required" if parameter.required else ""
    return f"`{value}`"
