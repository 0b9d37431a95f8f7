"""A definition is a version that never changes; its needs are computed and only go up."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.capacity import Capacity
from lcm.domain.errors import Conflict, InvalidDefinition
from lcm.domain.lablet.definition import (
    NO_OPTIONS,
    DefinitionOptions,
    DefinitionStatus,
    LabletDefinition,
    LicenseTier,
    archive,
    deprecate,
    new_definition,
    next_version,
    raised,
    version_key,
)
from lcm.domain.lablet.topology import analyse
from unit.domain.lablet.test_topology import BRANCH_OFFICE, lab, node

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
amounts = st.floats(0, 1000)
capacities = st.builds(Capacity, cpu=amounts, memory_gb=amounts, storage_gb=amounts, nodes=amounts)


def define(text: str = BRANCH_OFFICE, options: DefinitionOptions = NO_OPTIONS) -> LabletDefinition:
    return new_definition(
        text, analyse(text), definition_id="d1", name="branch", owner="ann", now=NOON, options=options
    )


@given(capacities, st.none() | capacities)
def test_stated_needs_only_raise_the_computed_ones(computed: Capacity, stated: Capacity | None) -> None:
    needs = raised(computed, stated)
    for name in Capacity.__struct_fields__:
        assert getattr(needs, name) >= getattr(computed, name)
        assert stated is None or getattr(needs, name) >= getattr(stated, name)


def test_an_author_cannot_lower_the_needs_of_a_lab() -> None:
    definition = define(options=DefinitionOptions(stated_needs=Capacity(memory_gb=500)))
    assert definition.demand.needs.memory_gb == 500
    assert definition.demand.needs.cpu == definition.computed_needs.cpu > 0


def test_an_unknown_node_definition_needs_stated_needs_and_the_node_is_named() -> None:
    text = lab(node(kind="mystery-box"))
    with pytest.raises(InvalidDefinition, match="mystery-box"):
        define(text)
    assert define(text, DefinitionOptions(stated_needs=Capacity(cpu=4, memory_gb=8))).demand.needs.cpu == 4


def test_another_topology_raises_the_minor_version_and_other_options_the_patch() -> None:
    first = define()
    other = BRANCH_OFFICE.replace("title:", "title: New", 1)
    patch = next_version(first, BRANCH_OFFICE, analyse(BRANCH_OFFICE), definition_id="d2", by="ben", now=NOON)
    minor = next_version(patch, other, analyse(other), definition_id="d3", by="ben", now=NOON)
    assert (patch.version, minor.version) == ("1.0.1", "1.1.0")
    assert (first.version, first.owner, minor.owner) == ("1.0.0", "ann", "ben")


def test_an_archived_definition_has_no_next_version_and_is_not_archived_with_live_sessions() -> None:
    with pytest.raises(Conflict, match="3 live sessions"):
        archive(define(), live_sessions=3)
    archived = archive(deprecate(define()), live_sessions=0)
    assert archived.status is DefinitionStatus.ARCHIVED
    with pytest.raises(Conflict, match="archived"):
        next_version(archived, "", analyse(BRANCH_OFFICE), definition_id="d2", by="ben", now=NOON)
    with pytest.raises(Conflict, match="archived"):
        deprecate(archived)


def test_a_lab_with_more_nodes_than_every_allowed_license_carries_is_refused() -> None:
    text = lab(*(node(identity=f"n{number}") for number in range(21)))
    with pytest.raises(InvalidDefinition, match="21 nodes"):
        define(text, DefinitionOptions(license_affinity=(LicenseTier.PERSONAL,)))
    both = (LicenseTier.PERSONAL, LicenseTier.ENTERPRISE)
    assert define(text, DefinitionOptions(license_affinity=both)).node_count == 21


def test_versions_of_cml_compare_as_numbers() -> None:
    older, newer = version_key("2.9.0+build.3"), version_key("2.10.0")
    assert older is not None
    assert newer is not None
    assert older < newer
    with pytest.raises(InvalidDefinition, match="no version of CML"):
        define(options=DefinitionOptions(cml_version_min="new"))
