"""Fleet files: YAML documents, each of one resource. Whatever is wrong is said with file, line and field."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from lcm.core.configuration import ConfigurationError, Marked, Mistake, parse_documents
from lcm.rest.plans import FleetPlan

STANDARD_INPUT: Final = "-"
TOPOLOGY: Final = "lab_yaml"
TOPOLOGY_FILE: Final = "topology_file"
"""In place of the topology of a definition: the file that has it, beside the fleet file."""


def read_documents(names: Sequence[str]) -> list[Marked]:
    """Return the documents of files, of the `.yaml` files in directories, and of standard input.

    Topologies that a definition names are no documents of the fleet. Raises ConfigurationError.
    """
    found = [document for name in names for document in _documents_in(name)]
    topologies = {_topology_of(document) for document in found if TOPOLOGY_FILE in document}
    documents = [document for document in found if Path(document.file) not in topologies]
    mistakes = [str(mistake) for document in documents for mistake in _repeated(document, document.file)]
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return documents


def resource_of(document: Marked) -> dict[str, Any]:
    """Return the resource as LCM takes it, with the text of its topology. Raises ConfigurationError."""
    if TOPOLOGY_FILE not in document:
        return dict(document)
    path = _topology_of(document)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        line = document.lines[TOPOLOGY_FILE]
        raise ConfigurationError(
            str(Mistake(document.file, line, TOPOLOGY_FILE, f"cannot read {path}: {reason}"))
        ) from None
    return {**{name: value for name, value in document.items() if name != TOPOLOGY_FILE}, TOPOLOGY: text}


def mistakes_of(plan: FleetPlan, documents: Sequence[Marked]) -> Iterator[Mistake]:
    """Yield what the plan refuses, with the place where it is written."""
    for step in plan.refused:
        if step.document is None:
            continue
        document = documents[step.document]
        for error in step.errors:
            field = error.field
            if field == TOPOLOGY and TOPOLOGY_FILE in document:
                field = TOPOLOGY_FILE
            yield Mistake(document.file, _line_of(document, field), field, error.message)


def _documents_in(name: str) -> Iterator[Marked]:
    if name == STANDARD_INPUT:
        yield from parse_documents(sys.stdin.read(), "<stdin>")
        return
    path = Path(name)
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"{name} has no .yaml file")
    for file in files:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"cannot read {file}: {reason}") from None
        yield from parse_documents(text, str(file))


def _topology_of(document: Marked) -> Path:
    return Path(document.file).parent / str(document[TOPOLOGY_FILE])


def _repeated(mapping: Marked, file: str) -> Iterator[Mistake]:
    for field, line in mapping.repeated.items():
        yield Mistake(file, line, field, "it is given twice")
    for value in mapping.values():
        if isinstance(value, Marked):
            yield from _repeated(value, file)


def _line_of(document: Marked, field: str) -> int:
    """Return the line of a field such as `options.priority`, as far as it is written."""
    line, place = document.line, document
    for part in re.findall(r"[^.\[\]]+", field):
        if part not in place.lines:
            break
        line, inner = place.lines[part], place[part]
        if not isinstance(inner, Marked):
            break
        place = inner
    return line
