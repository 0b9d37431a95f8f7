"""The versioned template of a lab. A stored version never changes; an edit makes the next one."""

import hashlib
import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from lcm.domain.capacity import Capacity
from lcm.domain.errors import Conflict, InvalidDefinition
from lcm.domain.lablet.ports import PortSpec
from lcm.domain.lablet.topology import Topology

VERSION_PATTERN: Final = r"^(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})$"
NAME_PATTERN: Final = r"^[^\s/\x00-\x1f\x7f]([^/\x00-\x1f\x7f]*[^\s/\x00-\x1f\x7f])?$"
"""A name is a part of an address: it has no slash, and no space at either end."""
MAX_NAME_LENGTH: Final = 100
PERSONAL_NODES: Final = 20


class LicenseTier(StrEnum):
    """The tiers of CML's licenses."""

    PERSONAL = "personal"
    ENTERPRISE = "enterprise"
    EVALUATION = "evaluation"


CARRIES: Final = {
    LicenseTier.PERSONAL: frozenset({LicenseTier.PERSONAL}),
    LicenseTier.ENTERPRISE: frozenset({LicenseTier.ENTERPRISE, LicenseTier.PERSONAL}),
    LicenseTier.EVALUATION: frozenset({LicenseTier.EVALUATION}),
}
"""The tiers that a worker of a tier satisfies."""
NODE_LIMIT: Final = {LicenseTier.PERSONAL: PERSONAL_NODES}
"""Nodes that a worker of a tier may run in all; others have no limit of their own."""


class DefinitionStatus(StrEnum):
    """Whether sessions may be created from a definition."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    ARCHIVED = "archived"


class Collect(StrEnum):
    """What is kept of a lab at its end."""

    NONE = "none"
    CONFIGS = "configs"
    """The topology, with the running configurations of its nodes."""
    TOPOLOGY = "topology"
    """The topology, with the configurations that it was imported with or that people extracted."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a session asks of a worker; copied from the definition when the session is created."""

    needs: Capacity
    ports: tuple[PortSpec, ...] = ()
    license_affinity: tuple[LicenseTier, ...] = ()
    """Tiers of which one is required; empty is any."""
    cml_version_min: str | None = None
    cml_version_max: str | None = None
    node_definitions: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    needs_nested_virtualization: bool = False
    region: str | None = None


class DefinitionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an author chooses beside the topology."""

    description: Annotated[str, Meta(max_length=2000)] = ""
    stated_needs: Capacity | None = None
    """Raises the computed needs; never lowers them."""
    license_affinity: tuple[LicenseTier, ...] = ()
    cml_version_min: str | None = None
    cml_version_max: str | None = None
    needs_nested_virtualization: bool = False
    max_duration_minutes: Annotated[int, Meta(ge=1, le=480)] = 60
    latest_start_minutes: Annotated[int, Meta(ge=0, le=480)] = 30
    boot_lead_time_minutes: Annotated[int, Meta(ge=0, le=480)] = 0
    """How long before its timeslot the lab is started at least; never before its window opens."""
    boot_timeout_seconds: Annotated[int, Meta(ge=30, le=7200)] | None = None
    collect: Collect = Collect.NONE
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0


NO_OPTIONS: Final = DefinitionOptions()


class LabletDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a lab that people can run."""

    id: str
    name: str
    version: str
    owner: str
    created_at: datetime
    status: DefinitionStatus = DefinitionStatus.ACTIVE
    lab_yaml_hash: str
    """Names the topology, which is stored beside the definitions: several versions may share one."""
    node_count: int
    demand: Demand
    computed_needs: Capacity
    options: DefinitionOptions = NO_OPTIONS


def topology_hash(text: str) -> str:
    """The digest by which two topologies are the same."""
    return hashlib.sha256(text.encode()).hexdigest()


def new_definition(
    text: str,
    lab: Topology,
    *,
    definition_id: str,
    name: str,
    owner: str,
    now: datetime,
    version: str = "1.0.0",
    options: DefinitionOptions = NO_OPTIONS,
) -> LabletDefinition:
    """The definition of a text that was analysed as `lab`. Raises InvalidDefinition."""
    _check_name(name, version)
    _check(lab, options)
    return LabletDefinition(
        id=definition_id,
        name=name,
        version=version,
        owner=owner,
        created_at=now,
        lab_yaml_hash=topology_hash(text),
        node_count=len(lab.nodes),
        demand=Demand(
            needs=raised(lab.needs, options.stated_needs),
            ports=lab.ports,
            license_affinity=tuple(sorted(set(options.license_affinity))),
            cml_version_min=options.cml_version_min,
            cml_version_max=options.cml_version_max,
            node_definitions=lab.node_definitions,
            images=lab.images,
            needs_nested_virtualization=options.needs_nested_virtualization,
        ),
        computed_needs=lab.needs,
        options=options,
    )


def _check_name(name: str, version: str) -> None:
    if len(name) > MAX_NAME_LENGTH or re.fullmatch(NAME_PATTERN, name) is None or name.endswith("\n"):
        raise InvalidDefinition(
            f"the name {name[:MAX_NAME_LENGTH]!r} cannot be used; write 1 to {MAX_NAME_LENGTH} characters"
            " without a slash, and no space at either end"
        )
    if re.fullmatch(VERSION_PATTERN, version) is None or version.endswith("\n"):
        raise InvalidDefinition(f"the version {version[:20]!r} cannot be used; write it as in 1.0.0")


def _check(lab: Topology, options: DefinitionOptions) -> None:
    if lab.unknown_definitions and options.stated_needs is None:
        nodes = ", ".join(n.label for n in lab.nodes if n.definition in lab.unknown_definitions)
        raise InvalidDefinition(
            f"the needs of {', '.join(lab.unknown_definitions)} (nodes {nodes}) are unknown;"
            " state the needs of the whole lab"
        )
    limits = [NODE_LIMIT.get(tier) for tier in options.license_affinity]
    if limits and all(limit is not None and lab.needs.nodes > limit for limit in limits):
        raise InvalidDefinition(
            f"the lab has {lab.needs.nodes:.0f} nodes and no license that it asks for carries more than"
            f" {PERSONAL_NODES}; remove nodes or allow the tier enterprise"
        )
    for bound in (options.cml_version_min, options.cml_version_max):
        if bound is not None and version_key(bound) is None:
            raise InvalidDefinition(f"'{bound}' is no version of CML; write it as in 2.9.0")


def raised(computed: Capacity, stated: Capacity | None) -> Capacity:
    """The larger amount of each kind."""
    if stated is None:
        return computed
    names = Capacity.__struct_fields__
    return Capacity(**{name: max(getattr(computed, name), getattr(stated, name)) for name in names})


def version_key(text: str) -> tuple[int, ...] | None:
    """A version as numbers, so that 2.10 comes after 2.9; None if it is none. A build `+5` does not count."""
    parts = text.partition("+")[0].partition("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None


def next_version(
    definition: LabletDefinition,
    text: str,
    lab: Topology,
    *,
    definition_id: str,
    by: str,
    now: datetime,
    options: DefinitionOptions | None = None,
) -> LabletDefinition:
    """The next version: a higher minor one for another topology, else a higher patch."""
    if definition.status is DefinitionStatus.ARCHIVED:
        raise Conflict(f"{definition.name} {definition.version} is archived; create a new definition")
    major, minor, patch = map(int, definition.version.split("."))
    is_new = topology_hash(text) != definition.lab_yaml_hash
    return new_definition(
        text,
        lab,
        definition_id=definition_id,
        name=definition.name,
        owner=by,
        now=now,
        version=f"{major}.{minor + 1}.0" if is_new else f"{major}.{minor}.{patch + 1}",
        options=options or definition.options,
    )


def deprecate(definition: LabletDefinition) -> LabletDefinition:
    """No new sessions; sessions that exist go on."""
    if definition.status is DefinitionStatus.ARCHIVED:
        raise Conflict(f"{definition.name} {definition.version} is archived already")
    return replace(definition, status=DefinitionStatus.DEPRECATED)


def archive(definition: LabletDefinition, *, live_sessions: int) -> LabletDefinition:
    """Hide a definition; refused while sessions of it are live."""
    if live_sessions:
        raise Conflict(f"{live_sessions} live sessions run {definition.name}; end them first")
    return replace(definition, status=DefinitionStatus.ARCHIVED)
