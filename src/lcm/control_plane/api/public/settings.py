"""Settings that operators change at run time."""

from typing import Annotated, Any

from fastapi import APIRouter
from msgspec.structs import replace
from pydantic import ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Plane, SeenVersion, Viewer
from lcm.control_plane.records import discovery_settings
from lcm.control_plane.records.preconditions import etag
from lcm.domain.discovery import DiscoverySettings
from lcm.domain.errors import UnknownReference
from lcm.rest.fleet import DiscoveryView
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/settings", tags=["settings"])

_Key = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f=,]+$")]
_Value = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f,]*$")]


class DiscoveryChange(RequestBody):
    """Omitted fields keep their values; null falls back to the controller's environment."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tag_filter": {"team": "networking"}, "ami_filter": "CML-2.9*"}]},
    )

    enabled: bool | None = Field(None, description="False stops imports and the orphan sweep.")
    regions: list[Annotated[str, Field(max_length=63)]] | None = Field(
        None, min_length=1, max_length=50, description="Names of /api/regions."
    )
    tag_filter: dict[_Key, _Value] | None = Field(
        None, min_length=1, max_length=20, description="Tags that an instance must have, all of them."
    )
    ami_filter: Annotated[str, Field(max_length=128, pattern=r"^[^\x00-\x1f]*$")] | None = Field(
        None, description="The AMI name that an instance must have, with * and ?; empty: any."
    )


@router.get("/discovery", summary="Get discovery settings", **documented(DiscoveryView))
async def show_discovery(_: Viewer, plane: Plane) -> Response:
    """The `ETag` names this version; a change must send it as `If-Match`."""
    settings = await discovery_settings.read(plane.records.store)
    return answer(settings, etag=etag(settings.version))


@router.patch(
    "/discovery",
    summary="Change discovery settings",
    **documented(DiscoveryView, problems=[409, 412, 422, 428]),
)
async def change_discovery(body: DiscoveryChange, _: Admin, plane: Plane, seen: SeenVersion) -> Response:
    """Controllers apply them within five minutes. `If-Match` must be the `ETag` that was read, so that
    concurrent changes do not overwrite each other."""
    unknown = sorted(set(body.regions or ()) - set(plane.policies.regions))
    if unknown:
        known = ", ".join(plane.policies.regions)
        raise UnknownReference(f"region {unknown[0]!r} is not configured; choose among: {known or 'none'}")
    given: dict[str, Any] = body.model_dump(exclude_unset=True)
    if given.get("regions") is not None:
        given["regions"] = tuple(dict.fromkeys(given["regions"]))

    def decide(settings: DiscoverySettings) -> DiscoverySettings:
        return replace(settings, **given)

    settings = await discovery_settings.change(plane.records.store, decide, seen)
    return answer(settings, etag=etag(settings.version))
