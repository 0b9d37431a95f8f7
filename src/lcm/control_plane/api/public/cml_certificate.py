"""The certificate of a worker's CML that LCM trusts."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Given, Plane
from lcm.control_plane.commands.accept_certificate import accept_certificate

router = APIRouter(prefix="/api/workers/{worker_id}/cml-certificate", tags=["workers"])


class AcceptedCertificate(RequestBody):
    """The certificate to trust: `cml_refused_certificate_sha256` of the worker, once you have compared it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sha256": "9f" * 32}]})

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="Its SHA-256 fingerprint.")]


@router.put("", summary="Accept a changed CML certificate", **INTENT)
async def accept(
    worker_id: str, body: AcceptedCertificate, person: Admin, plane: Plane, given: Given
) -> Response:
    """LCM sends nothing to a CML that presents another certificate than the pinned one. This pins it; any
    other is refused with 409. Both fingerprints are recorded, with who accepted."""
    return accepted(
        await accept_certificate(plane.records, worker_id, body.sha256, by=person.name, preconditions=given)
    )
