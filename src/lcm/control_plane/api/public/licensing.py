"""Licenses: registration and deregistration of workers, the token of the fleet, license debts."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, SecretStr
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Given, Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.license_worker import (
    list_debts,
    remove_fleet_token,
    request_deregistration,
    request_license,
    set_fleet_token,
    settle_debt,
)
from lcm.control_plane.records.fleet_token import has_fleet_token, read_terms
from lcm.domain.license import LicenseDebt, LicenseTerms, ProductLicense
from lcm.rest.schemas import LicenseDebts, LicenseSettings
from lcm.web.answers import answer, documented

router = APIRouter(tags=["licensing"])

Token = Annotated[SecretStr, Field(min_length=1, max_length=256, json_schema_extra={"writeOnly": True})]


class Terms(RequestBody):
    """What is set on CML besides; null is left as CML has it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": "YTM4Y2Rm…"}]})

    product_license: ProductLicense | None = None
    node_count: int | None = Field(None, ge=0, le=10_000, description="Nodes beyond those of the product.")
    ssms_url: str | None = Field(
        # To the pattern of the stored terms \x1c to \x1f are white space, to pydantic's they are not.
        None,
        pattern=r"^https?://[^\s\x00-\x1f@]{1,255}$",
        description="License server instead of Cisco's.",
    )
    proxy_host: str | None = Field(None, pattern=r"^[A-Za-z0-9.:_-]{1,253}$")
    proxy_port: int | None = Field(None, ge=1, le=65_535)

    def terms(self) -> LicenseTerms:
        return LicenseTerms(
            product_license=self.product_license,
            node_count=self.node_count,
            ssms_url=self.ssms_url,
            proxy_host=self.proxy_host,
            proxy_port=self.proxy_port,
        )


class NewLicense(Terms):
    """A token of your smart account, or none to use the fleet's; it is stored sealed and never shown."""

    token: Token | None = None


class FleetLicense(Terms):
    """The token for every worker that should be licensed and has none of its own."""

    token: Token


@router.post(
    "/api/workers/{worker_id}/license",
    summary="License a worker",
    **INTENT,
)
async def register(worker_id: WorkerRef, body: NewLicense, _: Admin, plane: Plane, given: Given) -> Response:
    """The worker controller registers it once CML is ready; `license` of the worker shows the progress.

    Terms of an earlier request stay unless this one names any; a term that is null is left as CML has it.
    """
    token = body.token.get_secret_value() if body.token else None
    terms = body.terms() if body.model_fields_set - {"token"} else None
    return accepted(await request_license(plane.records, worker_id, token, terms=terms, preconditions=given))


@router.delete(
    "/api/workers/{worker_id}/license",
    summary="Release a license",
    **INTENT,
)
async def deregister(worker_id: WorkerRef, _: Admin, plane: Plane, given: Given) -> Response:
    return accepted(await request_deregistration(plane.records, worker_id, preconditions=given))


@router.get(
    "/api/settings/license", summary="Get the fleet's license settings", **documented(LicenseSettings)
)
async def fleet_license(_: Viewer, plane: Plane) -> Response:
    """Whether a token is set, and the terms; the token is never shown."""
    terms = await read_terms(plane.records.store)
    return answer(LicenseSettings(has_token=await has_fleet_token(plane.records), terms=terms))


@router.put(
    "/api/settings/license",
    summary="Set the fleet's license token",
    **documented(LicenseSettings, problems=[409, 422]),
)
async def set_fleet_license(body: FleetLicense, _: Admin, plane: Plane) -> Response:
    """Workers that should be licensed and are not are registered with it automatically."""
    await set_fleet_token(plane.records, body.token.get_secret_value(), body.terms())
    return answer(LicenseSettings(has_token=True, terms=body.terms()))


@router.delete(
    "/api/settings/license",
    summary="Remove the fleet's license token",
    **documented(None, 204, "Removed.", problems=[409]),
)
async def forget_fleet_license(_: Admin, plane: Plane) -> Response:
    """Workers that were registered with it keep their licenses."""
    await remove_fleet_token(plane.records)
    return Response(status_code=204)


@router.get("/api/license-debts", summary="List license debts", **documented(LicenseDebts))
async def debts(_: Viewer, plane: Plane) -> Response:
    """Terminated workers whose deregistration was not confirmed: check them in your smart account."""
    return answer(LicenseDebts(items=await list_debts(plane.records)))


@router.post(
    "/api/license-debts/{worker_id}/settle",
    summary="Settle a license debt",
    **documented(LicenseDebt, problems=[404, 409]),
)
async def settle(worker_id: str, person: Admin, plane: Plane) -> Response:
    return answer(await settle_debt(plane.records, worker_id, by=person.name))
