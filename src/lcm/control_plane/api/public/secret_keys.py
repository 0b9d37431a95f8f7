"""The key that seals stored secrets, for admins. It can be rotated and is never shown."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from lcm.control_plane.api.dependencies import Admin, Plane, services
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/secret-keys", tags=["access"])


class KeyRotated(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the present key, and how many secrets were sealed again with it."""

    key_id: str
    resealed: int


@router.post("/rotate", summary="Rotate the secret key", **documented(KeyRotated, problems=[409]))
async def rotate(_: Admin, plane: Plane, request: Request) -> Response:
    """Every stored secret is sealed again with a new key, then the old key is destroyed.

    With the key in `LCM_SECRET_KEY` the answer is 409, with instructions for a rotation there.
    """
    plane.records.secrets.require_key_file()
    await services(request).identity.log.record_action("secret-keys")  # a file: no commit can hold the entry
    resealed = await plane.records.secrets.rotate()
    return answer(KeyRotated(key_id=plane.records.secrets.key_id, resealed=resealed))
