"""How results are printed: a table for people; JSON, YAML, names or a part of the JSON for programs."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lcm.cli.terminal import Exit, fail, is_styled, paint

FORMATS: Final = "table, wide, json, yaml, name, jsonpath=PATH"
_GAP: Final = "   "
_STYLES: Final = {
    "green": "32",
    "orange": "33",
    "blue": "34",
    "red": "31",
    "purple": "35",
    "grey": "90",
    "fading": "33",
}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    cell: Callable[[Any], str]
    is_wide: bool = False
    """Whether it is shown with `-o wide` only."""
    color: Callable[[Any], str] = lambda _: ""


@dataclass(frozen=True)
class Format:
    """What `-o` asks for."""

    name: str
    path: str = ""

    @property
    def is_table(self) -> bool:
        return self.name in ("table", "wide")


def format_of(text: str) -> Format:
    """Return the format, or end with an error that names those there are."""
    name, _, path = text.partition("=")
    if name == "jsonpath" and path:
        return Format(name, path)
    if name not in ("table", "wide", "json", "yaml", "name") or path:
        fail(f"-o {text}: choose one of {FORMATS}", Exit.USAGE)
    return Format(name)


def print_items(
    items: Sequence[Any],
    form: Format,
    columns: Sequence[Column],
    name_of: Callable[[Any], str],
    *,
    is_one: bool = False,
    nothing: str = "There are none.",
) -> None:
    """Print these; `is_one` prints the only one as it is and not as a list."""
    if form.is_table:
        if items:
            print_table(items, columns, is_wide=form.name == "wide")
        elif is_styled(sys.stderr):
            print(nothing, file=sys.stderr)
    elif form.name == "name":
        for item in items:
            print(name_of(item))
    else:
        print_document(items[0] if is_one and len(items) == 1 else {"items": list(items)}, form)


def print_document(content: Any, form: Format) -> None:
    """Print as JSON or YAML, or a part of it."""
    if form.name == "yaml":
        import yaml

        print(yaml.safe_dump(_plain(content), sort_keys=False, allow_unicode=True), end="")
    elif form.name == "jsonpath":
        for value in find(_plain(content), form.path):
            print(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    else:
        print(msgspec.json.format(msgspec.json.encode(content), indent=2).decode())


def print_table(items: Sequence[Any], columns: Sequence[Column], *, is_wide: bool = False) -> None:
    """Print one row for each; at a terminal the last column takes what room is left."""
    shown = [column for column in columns if is_wide or not column.is_wide]
    rows = [[one_line(column.cell(item)) for column in shown] for item in items]
    titles = [column.title for column in shown]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    if sys.stdout.isatty() and not is_wide:
        widths = _fitted(widths, shutil.get_terminal_size().columns)
    print(paint(_row(titles, widths), "1"))
    for item, cells in zip(items, rows, strict=True):
        styles = [_STYLES.get(column.color(item), "") for column in shown]
        print(_row(cells, widths, styles))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print name and value of each fact that has a value."""
    known = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{paint(name.ljust(width), '1')}  {one_line(value)}")


def find(content: Any, path: str) -> Iterator[Any]:
    """Yield what is at a path such as `{.items[*].name}` or `items[0].tags.team`.

    Raises no error for what is not there: a part that some items lack is common.
    """
    found = [content]
    for name, index in _STEPS.findall(path.strip().removeprefix("{").removesuffix("}").removeprefix("$")):
        if name:
            found = [value[name] for value in found if isinstance(value, dict) and name in value]
        elif index == "*":
            found = [part for value in found for part in (value if isinstance(value, list) else ())]
        else:
            place = int(index)
            found = [
                value[place]
                for value in found
                if isinstance(value, list) and -len(value) <= place < len(value)
            ]
    yield from found


_STEPS: Final = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\*|-?\d+)\]")


def age(moment: datetime | None, now: datetime) -> str:
    """Return how long ago, in its largest unit."""
    return "" if moment is None else span((now - moment).total_seconds())


def span(seconds: float) -> str:
    """Return a duration as people say it: 45s, 12m, 3h, 9d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def moment(when: datetime | None) -> str:
    """Return a moment in UTC, to the minute."""
    return "" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def usd(amount: float) -> str:
    return f"${amount:,.2f}"


def _plain(content: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(content))


def one_line(text: str) -> str:
    """Return the text without what would break a row or write elsewhere on a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _fitted(widths: list[int], room: int) -> list[int]:
    others = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    return [*widths[:-1], max(min(widths[-1], room - others), 8)]


def _row(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str] = ()) -> str:
    parts = []
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = cell if len(cell) <= width else cell[: width - 1] + "…"
        parts.append(paint(text, styles[place] if styles else "") + " " * (width - len(text)))
    return _GAP.join(parts).rstrip()
