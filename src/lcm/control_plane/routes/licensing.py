"""Licenses: what people wish, what the worker controller reports, what is owed."""

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from starlette.responses import Response

from lcm.control_plane.commands.license_worker import (
    license_token,
    list_debts,
    report_license,
    request_deregistration,
    request_license,
    settle_debt,
)
from lcm.control_plane.routes.dependencies import Admin, Given, LeaderFence, Plane, Viewer
from lcm.control_plane.routes.intents import INTENT, accepted
from lcm.domain.license import LicenseDebt, LicenseOperation
from lcm.domain.worker import Worker
from lcm.rest.schemas import LicenseDebts, LicenseReport, LicenseToken
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(tags=["licensing"])

_INTERNAL = documented(Worker, problems=[404, 409, 422])


class NewLicense(BaseModel):
    """A token of your smart account; it is kept sealed and never shown again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"token": "YTM4Y2Rm…"}]})

    token: SecretStr = Field(min_length=1, max_length=256, json_schema_extra={"writeOnly": True})


@router.post(
    "/api/workers/{worker_id}/license",
    summary="License a worker",
    **INTENT,
)
async def register(worker_id: str, body: NewLicense, _: Admin, plane: Plane, given: Given) -> Response:
    """The worker controller registers it once CML is ready; `license` of the worker shows how it goes."""
    worker = await request_license(plane, worker_id, body.token.get_secret_value(), conditions=given)
    return accepted(worker)


@router.delete(
    "/api/workers/{worker_id}/license",
    summary="Give a license back",
    **INTENT,
)
async def deregister(worker_id: str, _: Admin, plane: Plane, given: Given) -> Response:
    return accepted(await request_deregistration(plane, worker_id, conditions=given))


@router.get("/api/license-debts", summary="Licenses not known to be free", **documented(LicenseDebts))
async def debts(_: Viewer, plane: Plane) -> Response:
    """Workers that are gone and whose deregistration could not be confirmed: look in your smart account."""
    return answer(LicenseDebts(items=await list_debts(plane)))


@router.post(
    "/api/license-debts/{worker_id}/settle",
    summary="A debt is settled",
    **documented(LicenseDebt, problems=[404]),
)
async def settle(worker_id: str, person: Admin, plane: Plane) -> Response:
    return answer(await settle_debt(plane, worker_id, by=person.name))


@router.get(
    "/api/internal/workers/{worker_id}/license-token",
    tags=["internal"],
    summary="The token to register with",
    **documented(LicenseToken, problems=[404]),
)
async def token(worker_id: str, _: LeaderFence, plane: Plane) -> Response:
    return answer(LicenseToken(token=await license_token(plane, worker_id)))


def _add_report(step: str, operation: LicenseOperation, noun: str, summary: str) -> None:
    @router.post(
        f"/api/internal/workers/{{worker_id}}/license/{step}-{noun}",
        tags=["internal"],
        summary=summary,
        name=f"{step}_{noun}",
        **_INTERNAL,
        **reads(LicenseReport),
    )
    async def report(
        worker_id: str,
        fence: LeaderFence,
        body: Annotated[LicenseReport, Depends(body_of(LicenseReport))],
        plane: Plane,
    ) -> Response:
        return answer(await report_license(plane, worker_id, step, operation, body, fence=fence))


for _operation, _noun in (
    (LicenseOperation.REGISTER, "registration"),
    (LicenseOperation.DEREGISTER, "deregistration"),
):
    for _step, _summary in (("start", "began"), ("complete", "is done"), ("fail", "failed")):
        _add_report(_step, _operation, _noun, f"A {_noun} {_summary}")
