"""Identifiers are fresh, and a seed decides them."""

import random
import uuid

from lcm.core.ids import RandomIds


def test_an_identifier_is_a_uuid4_in_lower_case() -> None:
    new_id = RandomIds().new_id()
    assert uuid.UUID(new_id).version == 4
    assert new_id == new_id.lower()


def test_the_same_seed_gives_the_same_identifiers() -> None:
    first, second = RandomIds(random.Random(7)), RandomIds(random.Random(7))
    assert [first.new_id() for _ in range(3)] == [second.new_id() for _ in range(3)]


def test_identifiers_are_all_different() -> None:
    ids = RandomIds()
    assert len({ids.new_id() for _ in range(1_000)}) == 1_000
