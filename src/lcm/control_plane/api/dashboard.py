"""The built dashboard and its assets."""

import mimetypes
import os
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Scope

from lcm.control_plane.api.public import sessions
from lcm.web.compression import takes
from lcm.web.problems import problem

STATIC = Path(__file__).parents[1] / "static"
FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
CODINGS: Final = (("br", ".br"), ("gzip", ".gz"))
"""What the build has written beside an asset, smallest first."""


class BuiltAssets(StaticFiles):
    """Assets that carry the digest of their content in their name, compressed when they were built."""

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        request_headers = Headers(scope=scope)
        path, headers = Path(full_path), dict(FOR_EVER)
        for coding, suffix in CODINGS:
            compressed = path.with_name(path.name + suffix)
            if takes(request_headers, coding) and compressed.is_file():
                headers["Content-Encoding"] = coding
                path, stat_result = compressed, compressed.stat()
                break
        media_type = mimetypes.guess_type(full_path)[0]
        response = FileResponse(path, status_code, headers, media_type, stat_result=stat_result)
        if self.is_not_modified(response.headers, request_headers):
            return NotModifiedResponse(response.headers)
        return response


router = APIRouter(include_in_schema=False)
router.mount("/assets", BuiltAssets(directory=STATIC / "assets", check_dir=False), name="assets")


@router.get("/")
async def page(request: Request, code: str | None = None, token: str | None = None) -> Response:
    """Serve the dashboard; exchange the code of a link, or a token, in the URL for a session cookie."""
    if code is not None or token is not None:
        response: Response = RedirectResponse("/", status_code=303)
        await sessions.sign_in_by_link(request, response, code=code, token=token)
        return response
    if not (STATIC / "index.html").exists():
        return problem(
            503,
            "no-dashboard",
            "Dashboard not built",
            "run 'make setup' to build it; the API works without",
        )
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-store"})


@router.get("/favicon.svg")
async def icon() -> Response:
    return FileResponse(STATIC / "favicon.svg")
