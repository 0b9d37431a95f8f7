"""Bodies that people send: a field takes its documented type and no other, in every model by one rule."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from lcm.control_plane.api import public
from lcm.control_plane.api.bodies import RequestBody
from support.people import PublicDesk

OTHERS: dict[str, tuple[object, ...]] = {
    "integer": (False, True, "5", 5.5),
    "number": (False, True, "5"),
    "boolean": (0, 1, "true", "yes"),
    "string": (False, 1, 4_102_444_800),
}
"""What is not of the type; pydantic would take most of it for something that is."""


def models() -> set[type[BaseModel]]:
    """All that the routes of people read as pydantic models."""
    annotations = [
        parameter.field_info.annotation
        for router in public.ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for parameter in route.dependant.body_params
    ]
    return {each for each in annotations if isinstance(each, type) and issubclass(each, BaseModel)}


def wrong_values() -> Iterator[tuple[type[BaseModel], str, object]]:
    for model in sorted(models(), key=lambda each: each.__name__):
        for name, schema in model.model_json_schema()["properties"].items():
            types = {choice.get("type") for choice in schema.get("anyOf", [schema])}
            for kind in types & OTHERS.keys():
                for value in OTHERS[kind]:
                    yield model, name, value


def test_every_body_that_people_send_keeps_the_rule() -> None:
    assert len(models()) >= 10
    assert [model.__name__ for model in models() if not issubclass(model, RequestBody)] == []


@pytest.mark.parametrize(("model", "name", "value"), list(wrong_values()))
def test_a_field_takes_no_other_type_for_its_own(model: type[BaseModel], name: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate({name: value})
    assert (name,) in {error["loc"][:1] for error in refused.value.errors()}


@pytest.mark.parametrize("terms", [{"node_count": False}, {"node_count": "5"}, {"proxy_port": True}])
async def test_terms_of_a_license_are_not_guessed_from_another_type(terms: dict[str, Any]) -> None:
    desk = await PublicDesk().open()
    answer = await desk.admin.put("/api/settings/license", {"token": "t" * 40, **terms})
    assert (answer.status, answer.kind) == (422, "invalid")
    assert [error["field"] for error in answer.body["errors"]] == list(terms)


async def test_a_hold_ends_at_a_written_time_and_not_at_a_number_of_seconds() -> None:
    desk = await PublicDesk().open()
    for until in (4_102_444_800, "4102444800", "2100-01-01T00:00:00"):
        assert (await desk.operator.put("/api/workers/w1/hold", {"until": until})).status == 422
    assert (await desk.operator.put("/api/workers/w1/hold", {"until": "2100-01-01T00:00:00Z"})).status == 202


async def test_terms_that_are_accepted_can_be_read_again() -> None:
    desk = await PublicDesk().open()
    for character in map(chr, range(256)):
        terms = {"ssms_url": f"https://ssms{character}.example"}
        stored = await desk.admin.put("/api/settings/license", {"token": "t" * 40, **terms})
        assert stored.status in (200, 422)
        assert (await desk.viewer.get("/api/settings/license")).status == 200, repr(character)
