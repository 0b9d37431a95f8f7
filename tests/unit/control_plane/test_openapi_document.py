"""The OpenAPI document is fit for generators of clients."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from lcm.control_plane.api.app import openapi_document
from lcm.control_plane.api.openapi import operation_id, part_of

DOCUMENT = openapi_document()
PUBLIC = part_of(DOCUMENT, internal=False)
INTERNAL = part_of(DOCUMENT, internal=True)


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
        assert not named or "401" in operation["responses"], path
        assert ("controller" in named) is path.startswith("/api/internal/"), path


def test_internal_operations_are_marked() -> None:
    for path, operation in operations():
        assert operation.get("x-internal", False) is path.startswith("/api/internal/"), path


def test_every_operation_of_people_says_which_role_it_needs() -> None:
    for path, operation in operations():
        is_of_people = {"token": []} in operation["security"]
        assert (operation.get("x-role") in ("viewer", "operator", "admin")) is is_of_people, path


def test_public_and_internal_operations_are_apart_and_none_is_lost() -> None:
    assert all(path.startswith("/api/internal/") for path in INTERNAL["paths"])
    assert not any(path.startswith("/api/internal/") for path in PUBLIC["paths"])
    assert PUBLIC["paths"] | INTERNAL["paths"] == DOCUMENT["paths"]


def test_each_part_has_the_schemas_and_the_access_that_it_refers_to() -> None:
    public, internal = PUBLIC["components"], INTERNAL["components"]
    assert set(public["securitySchemes"]) == {"token", "session"}
    assert set(internal["securitySchemes"]) == {"controller"}
    assert public["schemas"] | internal["schemas"] == DOCUMENT["components"]["schemas"]
    for part in (PUBLIC, INTERNAL):
        named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(part)))
        assert named <= set(part["components"]["schemas"])


def test_what_only_controllers_send_is_not_in_the_public_document() -> None:
    assert "LeadershipClaim" not in PUBLIC["components"]["schemas"]
    assert "WantedWorker" in PUBLIC["components"]["schemas"]  # of fleet files: no operation refers to it
