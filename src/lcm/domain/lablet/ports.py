"""The ports of a lab: read from the tags of its nodes, picked for a claim.

Tags are PATty's: `pat:[tcp|udp:]<outside>:<inside>`, `serial:<outside>[:<line>]`, `vnc:<outside>`. The port
outside is an example only; LCM picks its own, because two labs of one author would ask for the same.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from lcm.domain.errors import NoFreePort

LOWEST_PORT: Final = 2000
HIGHEST_PORT: Final = 9999
COOLING: Final = timedelta(minutes=10)
"""A port freed less than this ago is picked last: PATty and clients are slow to let go of it."""
MAX_TAG_LENGTH: Final = 64

PLACEHOLDER: Final = re.compile(r"\$\{PORT_([A-Za-z0-9_-]+)\}")
_NUMBER: Final = r"[0-9]{1,5}"
_OUTSIDE: Final = rf"(?P<outside>{_NUMBER}|\$\{{PORT_[A-Za-z0-9_-]+\}})"
_FORMS: Final = {
    "pat": re.compile(rf"pat:(?:(?P<protocol>tcp|udp):)?{_OUTSIDE}:(?P<inside>{_NUMBER})\Z"),
    "serial": re.compile(rf"serial:{_OUTSIDE}(?::(?P<inside>{_NUMBER}))?\Z"),
    "vnc": re.compile(rf"vnc:{_OUTSIDE}\Z"),
}
_SYNTAX: Final = {
    "pat": "pat:<outside>:<inside>, pat:tcp:<outside>:<inside> or pat:udp:<outside>:<inside>",
    "serial": "serial:<outside> or serial:<outside>:<line>",
    "vnc": "vnc:<outside>",
}


class PortKind(StrEnum):
    """How PATty reaches the node."""

    PAT = "pat"
    SERIAL = "serial"
    VNC = "vnc"


class PortKey(NamedTuple):
    """What identifies a port of a lab, whatever it is called and wherever it is outside."""

    node: str
    kind: PortKind
    protocol: str
    inside: int


class PortSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One port that a lab needs."""

    name: str
    node: str
    """The label of the node."""
    kind: PortKind
    protocol: str
    """tcp or udp; for the other kinds the kind."""
    inside: int = 0
    """The port of the node; for serial its line."""
    fixed: int | None = None
    """The author requires this port and no other."""

    @property
    def key(self) -> PortKey:
        return PortKey(self.node, self.kind, self.protocol, self.inside)


class BadTag(ValueError):
    """The tag begins like one of PATty's and is none; the message says how to write it."""


class PortTag(NamedTuple):
    """A tag that asks for a port."""

    text: str
    kind: PortKind
    protocol: str
    outside: str
    inside: int

    @property
    def placeholder(self) -> str | None:
        """The name in `${PORT_<name>}` where the tag has no number."""
        match = PLACEHOLDER.fullmatch(self.outside)
        return match[1] if match else None

    def with_port(self, port: int) -> str:
        """The tag with this port outside; everything else as the author wrote it."""
        head, _, rest = self.text.partition(self.outside)
        return f"{head}{port}{rest}"


def read_tag(text: str) -> PortTag | None:
    """The port that a tag asks for; None for a tag with another purpose. Raises BadTag."""
    form = _FORMS.get(text.partition(":")[0])
    if form is None or ":" not in text:
        return None
    kind = PortKind(text.partition(":")[0])
    match = form.match(text)
    if match is None:
        raise BadTag(f"the tag '{text[:MAX_TAG_LENGTH]}' is not valid; write {_SYNTAX[kind]}")
    if len(text) > MAX_TAG_LENGTH:
        raise BadTag(f"the tag '{text[:20]}…' is longer than {MAX_TAG_LENGTH} characters; shorten it")
    groups = match.groupdict()
    inside = int(groups.get("inside") or 0)
    numbers = [int(groups["outside"])] if groups["outside"].isdigit() else []
    numbers += [inside] if kind is PortKind.PAT else []
    if any(not 1 <= number <= 65_535 for number in numbers):
        raise BadTag(f"the tag '{text}' names a port that does not exist; ports are 1 to 65535")
    protocol = (groups.get("protocol") or "tcp") if kind is PortKind.PAT else kind.value
    return PortTag(text, kind, protocol, groups["outside"], inside)


def canonical(name: str) -> str:
    """How names of ports are compared: `${PORT_R1_SERIAL}` is the port `r1_serial`."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def name_ports(tags: Iterable[tuple[str, PortTag]]) -> tuple[PortSpec, ...]:
    """The ports of (node label, tag) in order, each with a name of its own.

    A name is `<label>_<protocol>`, or what the placeholder of the tag says. Where that is not unique, the
    port inside is added, and then a number.
    """
    wanted = list(tags)
    plain = [tag.placeholder or _plain_name(label, tag) for label, tag in wanted]
    counts: dict[str, int] = {}
    for name in plain:
        counts[canonical(name)] = counts.get(canonical(name), 0) + 1
    taken: set[str] = set()
    specs = []
    for (label, tag), name in zip(wanted, plain, strict=True):
        is_shared = counts[canonical(name)] > 1 and tag.placeholder is None
        unique = _unique(f"{name}_{tag.inside}" if is_shared else name, taken)
        taken.add(canonical(unique))
        specs.append(
            PortSpec(name=unique, node=label, kind=tag.kind, protocol=tag.protocol, inside=tag.inside)
        )
    return tuple(specs)


def _plain_name(label: str, tag: PortTag) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', label)}_{tag.protocol}"


def _unique(name: str, taken: Collection[str]) -> str:
    number, unique = 1, name
    while canonical(unique) in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


class PortRange(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a worker that LCM may grant."""

    first: int = LOWEST_PORT
    last: int = 7999
    reserved: frozenset[int] = frozenset({9090})
    """Never granted: Cockpit listens on 9090."""

    def __post_init__(self) -> None:
        if not LOWEST_PORT <= self.first <= self.last <= HIGHEST_PORT:
            raise ValueError(
                f"the port range {self.first} to {self.last} is not within {LOWEST_PORT} to {HIGHEST_PORT}"
            )

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last and port not in self.reserved

    @property
    def size(self) -> int:
        """How many ports can be granted in all."""
        span = self.last - self.first + 1
        return span - sum(self.first <= port <= self.last for port in self.reserved)

    def free(self, taken: Collection[int]) -> int:
        """How many are left; `taken` may name ports outside the range."""
        return self.size - sum(port in self for port in set(taken))


def pick_ports(
    specs: Sequence[PortSpec],
    *,
    taken: Collection[int],
    within: PortRange,
    freed_at: Mapping[int, datetime] | None = None,
    now: datetime,
) -> dict[str, int]:
    """A port for each spec by name, none twice, the lowest first. Raises NoFreePort."""
    used = set(taken)
    picked = {spec.name: _fixed(spec, spec.fixed, used, within) for spec in specs if spec.fixed is not None}
    used.update(picked.values())
    cooling = {port for port, at in (freed_at or {}).items() if now - at < COOLING}
    others = [spec for spec in specs if spec.fixed is None]
    ports = _lowest(len(others), used, cooling, within)
    if len(ports) < len(others):
        raise NoFreePort(
            f"the lab needs {len(others)} ports and {len(ports)} of {within.first} to {within.last} are free;"
            " end a session on this worker or raise PORT_RANGE_MAX"
        )
    return {**picked, **{spec.name: port for spec, port in zip(others, ports, strict=True)}}


def _lowest(count: int, used: Collection[int], cooling: Collection[int], within: PortRange) -> list[int]:
    rested: list[int] = []
    last_choice: list[int] = []
    for port in range(within.first, within.last + 1):
        if len(rested) == count:
            break
        if port in within and port not in used:
            (last_choice if port in cooling else rested).append(port)
    return [*rested, *last_choice][:count]


def _fixed(spec: PortSpec, port: int, used: set[int], within: PortRange) -> int:
    if port not in within:
        raise NoFreePort(
            f"port {spec.name} must be {port}, which is outside {within.first} to {within.last};"
            " choose another or let LCM pick one"
        )
    if port in used:
        raise NoFreePort(f"port {spec.name} must be {port}, which is taken; let LCM pick one")
    used.add(port)
    return port
