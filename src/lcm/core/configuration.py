"""Configuration that people write: whatever is wrong is said with its file, line and field, all at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T", bound=msgspec.Struct)


class ConfigurationError(Exception):
    """LCM cannot run with these settings; the message says what to change."""


@dataclass(frozen=True)
class Mistake:
    """One thing to correct."""

    file: str
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.field}: {self.message}"


class Marked(dict[str, Any]):
    """A mapping that knows in which file and on which lines its keys stand."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__()
        self.file = file
        self.line = line
        self.lines: dict[str, int] = {}
        self.repeated: dict[str, int] = {}


def read_yaml(path: Path) -> Marked:
    """The mapping in a YAML file. Raises ConfigurationError."""
    try:
        return parse_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"cannot read {path}: {reason}") from None


def parse_yaml(text: str, file: str) -> Marked:
    """The mapping in a text that came from this file; an empty text is an empty mapping."""
    content = _loaded(text, file, yaml.load)
    if content is None:
        return Marked(file, 1)
    if not isinstance(content, Marked):
        raise ConfigurationError(str(Mistake(file, 1, "file", "it must be a mapping, 'name: value'")))
    return content


def parse_documents(text: str, file: str) -> list[Marked]:
    """The mappings in a text of several documents, without empty ones. Raises ConfigurationError."""
    found = _loaded(text, file, lambda text, loader: list(yaml.load_all(text, loader)))
    for place, document in enumerate(found, start=1):
        if not isinstance(document, Marked | None):
            message = "it must be a mapping, 'name: value'"
            raise ConfigurationError(str(Mistake(file, None, f"document {place}", message)))
    return [document for document in found if document is not None]


def _loaded(text: str, file: str, load: Callable[[str, type[yaml.SafeLoader]], Any]) -> Any:
    class Loader(yaml.SafeLoader):
        """Plain data only; each mapping remembers its lines."""

    def mapping(loader: Loader, node: yaml.MappingNode) -> Marked:
        marked = Marked(file, node.start_mark.line + 1)
        written = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                continue
            if key_node.value in written:
                marked.repeated[key_node.value] = key_node.start_mark.line + 1
            written.add(key_node.value)
        loader.flatten_mapping(node)  # anchors merged with `<<`, which may well say the same again
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node, deep=True))
            marked[key] = loader.construct_object(value_node, deep=True)
            marked.lines[key] = key_node.start_mark.line + 1
        return marked

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return load(text, Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigurationError(str(Mistake(file, line, "YAML", error.problem or str(error)))) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(str(Mistake(file, None, "YAML", str(error)))) from None


@cache
def _fields_of(struct: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Its fields by the names they are written with; resolving their types takes longer than a check."""
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def check(entry: object, struct: type[T], *, within: Mapping[str, Any], at: str) -> T | list[Mistake]:
    """The struct an entry describes, or everything that is wrong with it. `at` says where `within` has it."""
    file = within.file if isinstance(within, Marked) else "configuration"
    if not isinstance(entry, Mapping):
        line = within.lines.get(at.partition("[")[0]) if isinstance(within, Marked) else None
        return [Mistake(file, line, at, "it must be a mapping, 'name: value'")]
    lines = entry.lines if isinstance(entry, Marked) else {}
    start = entry.line if isinstance(entry, Marked) else None
    fields = _fields_of(struct)
    mistakes = []
    for name in entry:
        if name not in fields:
            known = ", ".join(fields)
            mistakes.append(Mistake(file, lines.get(name), f"{at}.{name}", f"unknown; there are: {known}"))
            continue
        try:
            msgspec.convert(entry[name], fields[name].type)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            inner = place.rstrip("`")
            mistakes.append(
                Mistake(file, lines.get(name), f"{at}.{name}{inner}", message[0].lower() + message[1:])
            )
    if isinstance(entry, Marked):
        mistakes += [
            Mistake(file, line, f"{at}.{name}", "it is given twice") for name, line in entry.repeated.items()
        ]
    mistakes += [
        Mistake(file, start, f"{at}.{name}", "it is missing")
        for name, field in fields.items()
        if field.required and name not in entry
    ]
    return mistakes or msgspec.convert(dict(entry), struct)
