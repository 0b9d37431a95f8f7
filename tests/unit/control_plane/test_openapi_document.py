"""The OpenAPI document is fit for generators of clients."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from lcm.control_plane.api.app import openapi_document
from lcm.control_plane.api.openapi import operation_id

DOCUMENT = openapi_document()


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, by_method in DOCUMENT["paths"].items():
        for operation in by_method.values():
            yield path, operation


def test_every_operation_has_a_name_of_its_own_that_is_an_identifier() -> None:
    names = Counter(operation["operationId"] for _, operation in operations())
    assert [name for name, count in names.items() if count > 1 or not name.isidentifier()] == []


@pytest.mark.parametrize(
    ("summary", "name"),
    [("Get a worker's load", "get_worker_load"), ("List workers", "list_workers")],
)
def test_the_name_of_an_operation_is_its_summary(summary: str, name: str) -> None:
    assert operation_id(summary) == name


def test_every_operation_says_which_access_it_needs() -> None:
    schemes = set(DOCUMENT["components"]["securitySchemes"])
    for path, operation in operations():
        named = {name for choice in operation["security"] for name in choice}
        assert named <= schemes
        assert bool(named) is ("401" in operation["responses"]), path
        assert ("controller" in named) is path.startswith("/api/internal/"), path


def test_internal_operations_are_marked() -> None:
    for path, operation in operations():
        assert operation.get("x-internal", False) is path.startswith("/api/internal/"), path
