"""For the worker controller: license tokens, and reports of license operations."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lcm.control_plane.api.dependencies import LeaderFence, Plane, secret_fence
from lcm.control_plane.commands.license_worker import license_token, report_license
from lcm.control_plane.store.port import Fence
from lcm.domain.license import LicenseOperation
from lcm.domain.worker import Worker
from lcm.rest.schemas import WORKER_CONTROLLER, LicenseReport, LicenseToken
from lcm.web.answers import answer, body_of, documented, reads

LicenseFence = Annotated[Fence, Depends(secret_fence(WORKER_CONTROLLER))]

router = APIRouter(prefix="/api/internal/workers/{worker_id}", tags=["licensing", "internal"])

_REPORT = documented(Worker, problems=[404, 409, 422])


@router.get(
    "/license-token",
    summary="Get the license token of a worker",
    **documented(LicenseToken, problems=[404, 409]),
)
async def token(worker_id: str, _: LicenseFence, plane: Plane) -> Response:
    return answer(await license_token(plane.records, worker_id))


def _add_report(step: str, operation: LicenseOperation, noun: str, summary: str) -> None:
    @router.post(
        f"/license/{step}-{noun}",
        summary=summary,
        name=f"{step}_{noun}",
        **_REPORT,
        **reads(LicenseReport),
    )
    async def report(
        worker_id: str,
        fence: LeaderFence,
        body: Annotated[LicenseReport, Depends(body_of(LicenseReport))],
        plane: Plane,
    ) -> Response:
        return answer(await report_license(plane.records, worker_id, step, operation, body, fence=fence))


for _operation, _noun in (
    (LicenseOperation.REGISTER, "registration"),
    (LicenseOperation.DEREGISTER, "deregistration"),
):
    for _step, _summary in (("start", "started"), ("complete", "completed"), ("fail", "failed")):
        _add_report(_step, _operation, _noun, f"Report a {_noun} as {_summary}")
_add_report("observe", LicenseOperation.REGISTER, "registration", "Report what CML says of its license")
