"""The adoption of workers that LCM found and did not launch."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Given, Plane
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.adopt_worker import adopt_worker

router = APIRouter(prefix="/api/workers/{worker_id}/adopt", tags=["workers"])


class Adoption(RequestBody):
    """The server to trust, by the certificate that you have compared."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"certificate_sha256": "9f" * 32}]})

    certificate_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        description="`cml_certificate_sha256` of the worker; null while that is null, or where certificates"
        " are not pinned."
    )


@router.post("", summary="Adopt a worker", **INTENT)
async def adopt(worker_id: WorkerRef, body: Adoption, person: Admin, plane: Plane, given: Given) -> Response:
    """From now on LCM logs in to its CML: it is monitored and licensed, and takes sessions. An instance that
    LCM did not launch gets no credential before. Another certificate than the present one is refused (409);
    adopting a worker again changes nothing."""
    return accepted(
        await adopt_worker(
            plane.records,
            plane.policies,
            worker_id,
            body.certificate_sha256,
            by=person.name,
            preconditions=given,
        )
    )
