"""YAML as nodes with their lines and offsets, so that a mistake has a place and a scalar can be replaced.

Built from libyaml's events with a stack of its own. PyYAML's composer recurses in C: a text of nested
brackets ends the process. Values stay text; whether `4` is a number is for the reader of the field.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 50
_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+\Z")


class YamlMistake(Exception):
    """The text is not YAML, or not of a kind that is read here; `line` says where."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value; `start` and `end` are offsets of characters, quotes included."""

    text: str
    is_plain: bool
    line: int
    start: int
    end: int

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in NULL

    @property
    def integer(self) -> int | None:
        """The number, also if it was quoted; None if it is none."""
        return int(self.text) if _INTEGER.match(self.text) and len(self.text) < 12 else None


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Names and values; of a repeated name the last value counts, as for CML."""

    line: int
    entries: dict[str, "Node"] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """The scalar of this name; None if it is absent, null or no scalar."""
        value = self.entries.get(name)
        return value.text if isinstance(value, Scalar) and not value.is_null else None

    def items_of(self, name: str) -> list["Node"]:
        """The list of this name; empty if it is absent or no list."""
        value = self.entries.get(name)
        return value.items if isinstance(value, Sequence) else []


Node = Scalar | Sequence | Mapping


MARK: Final = "\ufeff"
"""The byte order mark with which some editors begin a text; offsets count from the character after it."""


def compose(text: str) -> Node | None:
    """The only document of a text; None if it is empty. Raises YamlMistake."""
    try:
        return _Composer().run(yaml.parse(text.removeprefix(MARK), _LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlMistake(mark.line + 1 if mark else 1, error.problem or str(error)) from None
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0) or 0) + 1
        raise YamlMistake(line, str(error).splitlines()[0]) from None


class _Composer:
    """Builds the nodes of one stream of events."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._open: list[Sequence | Mapping] = []
        self._keys: list[str | None] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0

    def run(self, events: Iterator[Any]) -> Node | None:
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self._add(_scalar(event), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
                self._keys.pop()
            elif isinstance(event, yaml.AliasEvent):
                self._add(self._anchored(event), event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._begin_document(event)
        return self._root

    def _begin_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise YamlMistake(
                _line(event), "a second document begins; remove the line '---' and what follows"
            )

    def _begin(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlMistake(_line(event), f"nested deeper than {MAX_DEPTH} levels")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node: Sequence | Mapping = Mapping(_line(event)) if is_mapping else Sequence(_line(event))
        self._add(node, event)
        self._open.append(node)
        self._keys.append(None)

    def _anchored(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise YamlMistake(_line(event), f"there is no anchor '&{event.anchor}' before this alias")
        return self._anchors[event.anchor]

    def _add(self, node: Node, event: Any) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
        elif self._keys[-1] is None:
            self._keys[-1] = self._key(node, event)
        else:
            parent.entries[self._keys[-1]] = node
            self._keys[-1] = None

    @staticmethod
    def _key(node: Node, event: Any) -> str:
        if not isinstance(node, Scalar):
            raise YamlMistake(_line(event), "a name before ':' must be a simple text")
        return node.text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: Any) -> Scalar:
    start, end = event.start_mark, event.end_mark
    return Scalar(event.value, not event.style, start.line + 1, start.index, end.index)
