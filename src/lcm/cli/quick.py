"""Calls simple commands without Typer's machinery, which takes longer to load than most of them to answer.

The same annotations say what a command takes. Whatever is not plainly right - a mistake, `--help`, an unusual
way to write an option, a parameter that is not a text or a flag - is left to Typer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, Final, get_args

from typer.models import ArgumentInfo, OptionInfo

_FLAG: Final = bool
_TEXT: Final = (str, str | None)
_LIST: Final = (list[str], list[str] | None)


def call_of(
    commands: Mapping[str, Callable[..., None]], arguments: Sequence[str]
) -> Callable[[], None] | None:
    """Return the call that these arguments mean, None if Typer has to look at them."""
    if not arguments or arguments[0] not in commands:
        return None
    command = commands[arguments[0]]
    values = _values(_Parameters(command), list(arguments[1:]))
    return partial(command, **values) if values is not None else None


class _Parameters:
    """What a command takes, by how it is written."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.options: dict[str, tuple[str, Any]] = {}
        self.positional: list[tuple[str, Any]] = []
        self.required: set[str] = set()
        self.is_simple = True
        for name, parameter in signature(command).parameters.items():
            kind, info = get_args(parameter.annotation)
            self.is_simple &= kind is _FLAG or kind in (*_TEXT, *_LIST)
            if parameter.default is parameter.empty:
                self.required.add(name)
            if isinstance(info, OptionInfo):
                for written in _written(name, info):
                    self.options[written] = (name, kind)
            elif isinstance(info, ArgumentInfo):
                self.positional.append((name, kind))


def _written(name: str, info: OptionInfo) -> Iterator[str]:
    names = [info.default, *(info.param_decls or ())]
    written = [each for each in names if isinstance(each, str) and each.startswith("-")]
    yield from written or [f"--{name.replace('_', '-')}"]


def _values(known: _Parameters, words: list[str]) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    texts: list[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            texts.append(word)
            continue
        written, equals, value = word.partition("=")
        if written not in known.options or (equals and not written.startswith("--")):
            return None
        name, kind = known.options[written]
        if kind is _FLAG:
            if equals:
                return None
            values[name] = True
            continue
        if not equals:
            if not words or words[0].startswith("-"):
                return None
            value = words.pop(0)
        values[name] = [*values.get(name, ()), value] if kind in _LIST else value
    for name, kind in known.positional:
        if kind in _LIST:
            if texts:
                values[name] = texts
            texts = []
        elif texts:
            values[name] = texts.pop(0)
    is_complete = known.is_simple and not texts and known.required <= values.keys()
    return values if is_complete else None
