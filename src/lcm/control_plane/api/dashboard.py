"""The built dashboard and its assets."""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from lcm.control_plane.api.public import sessions
from lcm.web.problems import problem

STATIC = Path(__file__).parents[1] / "static"

router = APIRouter(include_in_schema=False)
router.mount("/assets", StaticFiles(directory=STATIC / "assets", check_dir=False), name="assets")


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
