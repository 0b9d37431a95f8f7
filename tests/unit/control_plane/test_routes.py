"""Which package a route belongs to follows from its path."""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from lcm.control_plane.api import internal, public


def paths(routers: tuple[APIRouter, ...]) -> list[str]:
    return [route.path for router in routers for route in router.routes if isinstance(route, APIRoute)]


def test_routes_for_controllers_are_under_api_internal_and_routes_for_people_are_not() -> None:
    assert paths(internal.ROUTERS)
    assert paths(public.ROUTERS)
    assert [path for path in paths(internal.ROUTERS) if not path.startswith("/api/internal/")] == []
    assert [path for path in paths(public.ROUTERS) if path.startswith("/api/internal")] == []
