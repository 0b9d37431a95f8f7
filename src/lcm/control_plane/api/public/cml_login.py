"""A worker's own CML login."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, SecretStr
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Given, Plane
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.change_login import remove_login, set_login

router = APIRouter(prefix="/api/workers/{worker_id}/cml-login", tags=["workers"])


class NewLogin(RequestBody):
    """An administrator account on the worker's CML; the password is stored sealed and never shown again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"username": "lcm", "password": "…"}]})

    username: Annotated[str, Field(min_length=1, max_length=64)]
    password: Annotated[SecretStr, Field(min_length=1, max_length=256, json_schema_extra={"writeOnly": True})]


@router.put("", summary="Set a worker's CML login", **INTENT)
async def set_own(
    worker_id: WorkerRef, body: NewLogin, person: Admin, plane: Plane, given: Given
) -> Response:
    """From its next request on LCM uses this login on the worker's CML instead of the fleet's."""
    password = body.password.get_secret_value()
    return accepted(
        await set_login(
            plane.records, worker_id, body.username, password, by=person.name, preconditions=given
        )
    )


@router.delete("", summary="Remove a worker's CML login", **INTENT)
async def remove_own(worker_id: WorkerRef, person: Admin, plane: Plane, given: Given) -> Response:
    """LCM uses the fleet's login on the worker's CML again."""
    return accepted(await remove_login(plane.records, worker_id, by=person.name, preconditions=given))
