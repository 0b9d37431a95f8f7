"""The reference of the command line, from the commands themselves; `generate_docs` writes it.

`generate_man` writes the same as pages for `man`.
"""

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
    found = list(commands(root, "lcm"))
    panels = list(dict.fromkeys(_panel(command) for _, command in found))
    for name, command in sorted(found, key=lambda each: panels.index(_panel(each[1]))):
        if _panel(command) != panel:
            panel = _panel(command)
            out.write(f"\n## {panel}\n")
        _write(out, name, command)
    return out.getvalue()


def commands(group: Any, name: str, panel: str | None = None) -> Iterator[tuple[str, Any]]:
    """Yield every command of the group, and of those within it, with its whole name."""
    for word, command in group.commands.items():
        if command.hidden:
            continue
        command.rich_help_panel = panel or command.rich_help_panel or "Other"
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}", command.rich_help_panel)
        else:
            yield f"{name} {word}", command


def _panel(command: Any) -> str:
    return str(command.rich_help_panel)


def _write(out: io.StringIO, name: str, command: Any) -> None:
    shown = parameters_of(command)
    arguments = [each for each in shown if each.param_type_name == "argument"]
    usage = " ".join([name, *(["[OPTIONS]"] if shown != arguments else []), *map(metavar_of, arguments)])
    out.write(f"\n### {name}\n\n`{usage}`\n\n{command.help}\n")
    if not shown:
        return
    out.write("\n| argument or option | default | meaning |\n|---|---|---|\n")
    for each in shown:
        out.write(f"| `{written(each)}` | {default_of(each)} | {(each.help or '').replace('|', '/')} |\n")


def parameters_of(command: Any) -> list[Any]:
    """Return the arguments and options that the command shows."""
    return [each for each in command.params if not each.hidden and not set(each.opts) & set(HIDDEN)]


def metavar_of(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def written(option: Any) -> str:
    """Return an argument or an option as it is typed."""
    if option.param_type_name == "argument":
        return metavar_of(option)
    names = ", ".join(option.opts)
    if option.secondary_opts:
        return f"{names} / {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def default_of(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value is True or callable(value) or value == ():
        return "required" if parameter.required else ""
    return f"`{value}`"
