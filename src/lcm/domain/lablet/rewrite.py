"""Puts the ports of a claim into a topology before it is imported.

Only the characters of port tags and `${PORT_<name>}` change; all else stays as the author wrote it. A text
that was rewritten can be rewritten again, with the same or other ports: a port is known by its node and what
it leads to, never by its number.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lcm.domain.errors import InvalidTopology, TopologyMistake
from lcm.domain.lablet import marked_yaml
from lcm.domain.lablet.marked_yaml import Scalar
from lcm.domain.lablet.node_definitions import KNOWN
from lcm.domain.lablet.ports import PLACEHOLDER, PortSpec, canonical
from lcm.domain.lablet.topology import TopologyReader, configuration_scalars


class Splice(NamedTuple):
    """A part of the text, and what it becomes."""

    start: int
    end: int
    text: str


def rewrite(text: str, specs: Sequence[PortSpec], ports: Mapping[str, int]) -> str:
    """The topology with the granted ports. Raises InvalidTopology if it is none or a tag has no port."""
    mark = marked_yaml.MARK if text.startswith(marked_yaml.MARK) else ""
    text = text.removeprefix(mark)
    reader = TopologyReader(text, KNOWN)
    reader.read()
    if reader.mistakes:
        raise InvalidTopology(reader.mistakes)
    splices = {splice.start: splice for splice in _splices(text, reader, specs, ports)}
    parts, at = [mark], 0
    for splice in sorted(splices.values()):
        parts += [text[at : splice.start], splice.text]
        at = splice.end
    return "".join([*parts, text[at:]])


def _splices(
    text: str, reader: TopologyReader, specs: Sequence[PortSpec], ports: Mapping[str, int]
) -> Iterator[Splice]:
    granted = {spec.key: ports[spec.name] for spec in specs if spec.name in ports}
    renamed: dict[str, str] = {}
    for port in reader.tagged:
        if port.key not in granted:
            message = f"no port was granted for the tag {port.tag.text}; save the definition again"
            raise InvalidTopology([TopologyMistake(port.scalar.line, port.node, message)])
        new = port.tag.with_port(granted[port.key])
        renamed.setdefault(port.tag.text, new)
        yield _replace(text, port.scalar, port.tag.text, new)
    yield from _smart_annotations(text, reader.root, renamed)
    numbers = {canonical(name): str(port) for name, port in ports.items()}
    for node in reader.root.items_of("nodes"):
        if isinstance(node, marked_yaml.Mapping):
            yield from _placeholders(text, node, numbers)


def _smart_annotations(text: str, root: marked_yaml.Mapping, renamed: Mapping[str, str]) -> Iterator[Splice]:
    """A smart annotation names the tag whose nodes it surrounds: it must follow the tag."""
    for annotation in root.items_of("smart_annotations"):
        if not isinstance(annotation, marked_yaml.Mapping):
            continue
        for name in ("tag", "label"):
            scalar = annotation.entries.get(name)
            if isinstance(scalar, Scalar) and scalar.text in renamed:
                yield _replace(text, scalar, scalar.text, renamed[scalar.text])


def _placeholders(text: str, node: marked_yaml.Mapping, numbers: Mapping[str, str]) -> Iterator[Splice]:
    for scalar in configuration_scalars(node):
        if "${PORT_" not in scalar.text:
            continue
        filled = _fill(scalar.text, numbers)
        if filled != scalar.text:
            raw = text[scalar.start : scalar.end]
            new = _fill(raw, numbers)
            is_whole = len(PLACEHOLDER.findall(raw)) == len(PLACEHOLDER.findall(scalar.text))
            yield Splice(scalar.start, scalar.end, new if is_whole else _quoted(filled))


def _fill(text: str, numbers: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: numbers.get(canonical(match[1]), match[0]), text)


def _replace(text: str, scalar: Scalar, old: str, new: str) -> Splice:
    raw = text[scalar.start : scalar.end]
    is_verbatim = raw.count(old) == 1
    return Splice(scalar.start, scalar.end, raw.replace(old, new) if is_verbatim else _quoted(new))


def _quoted(text: str) -> str:
    """A scalar on one line that YAML reads as exactly this text."""
    return json.dumps(text)
