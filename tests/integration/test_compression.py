"""What the dashboard loads is small on the wire, fetched once, and never held back."""

import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from lcm.control_plane.api.dashboard import STATIC
from lcm.core.timeouts import timeout
from support.lone_plane import LonePlane, lone_plane
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(not (STATIC / "index.html").is_file(), reason="the dashboard is not built")

ASSETS = sorted(path.name for path in (STATIC / "assets").glob("*.[jc]*s"))
FIRST_LOAD_BYTES = 150_000


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path) as plane:
        yield plane


@pytest_asyncio.fixture
async def wire(plane: LonePlane) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that shows answers as they come: nothing decompressed, nothing accepted that is not named."""
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(
        plane.url, headers=headers, auto_decompress=False, skip_auto_headers=("Accept-Encoding",)
    ) as client:
        yield client


async def fetch(
    wire: aiohttp.ClientSession, path: str, accepted: str | None = None
) -> tuple[aiohttp.ClientResponse, bytes]:
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    async with wire.get(path, headers=headers) as response:
        return response, await response.read()


@pytest.mark.parametrize(
    ("accepted", "coding", "suffix"),
    [
        ("gzip, deflate, br, zstd", "br", ".br"),
        ("gzip, deflate", "gzip", ".gz"),
        ("br;q=0, gzip;q=0.5", "gzip", ".gz"),
        ("*", "br", ".br"),
        ("identity", None, ""),
        ("*;q=0", None, ""),
        (None, None, ""),
    ],
)
async def test_an_asset_comes_in_the_smallest_coding_that_the_browser_takes(
    wire: aiohttp.ClientSession, accepted: str | None, coding: str | None, suffix: str
) -> None:
    for name in ASSETS:
        response, body = await fetch(wire, f"/assets/{name}", accepted)
        assert response.status == 200
        assert response.headers.get("Content-Encoding") == coding
        assert response.headers["Vary"] == "Accept-Encoding"
        assert response.content_type == ("text/css" if name.endswith(".css") else "text/javascript")
        assert body == (STATIC / "assets" / f"{name}{suffix}").read_bytes()


async def test_compressed_assets_are_the_assets(wire: aiohttp.ClientSession) -> None:
    for name in ASSETS:
        _, plain = await fetch(wire, f"/assets/{name}")
        _, zipped = await fetch(wire, f"/assets/{name}", "gzip")
        assert gzip.decompress(zipped) == plain


async def test_assets_are_fetched_once_and_the_page_every_time(wire: aiohttp.ClientSession) -> None:
    response, page = await fetch(wire, "/", "gzip, br")
    assert response.headers["Cache-Control"] == "no-store"
    named = re.findall(rb"/(assets/[^\"]+)", page)
    assert named
    for path in named:
        response, _ = await fetch(wire, f"/{path.decode()}", "br")
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    response, _ = await fetch(wire, "/assets/of-another-build.js", "br")
    assert response.status == 404
    assert "immutable" not in response.headers.get("Cache-Control", "")


async def test_a_first_load_is_small(wire: aiohttp.ClientSession) -> None:
    """The most that the first page may cost: 150 kB, what is loaded on demand not counted."""
    _, page = await fetch(wire, "/", "br")
    named = re.findall(rb"/(assets/[^\"]+)", page)
    sizes = [len((await fetch(wire, f"/{path.decode()}", "br"))[1]) for path in named]
    assert len(page) + sum(sizes) <= FIRST_LOAD_BYTES


async def test_a_long_json_answer_is_compressed_for_those_who_take_it(
    plane: LonePlane, wire: aiohttp.ClientSession
) -> None:
    for name in ("second", "third"):
        await plane.admin.create(name)
    plain_response, plain = await fetch(wire, "/api/workers")
    response, zipped = await fetch(wire, "/api/workers", "gzip, br")
    assert "Content-Encoding" not in plain_response.headers
    assert response.headers["Content-Encoding"] == "gzip"
    assert int(response.headers["Content-Length"]) == len(zipped) < len(plain) / 2
    assert len(json.loads(gzip.decompress(zipped))["items"]) == 3
    for each in (plain_response, response):
        assert each.headers["Vary"] == "Accept-Encoding"
        assert each.headers["Cache-Control"] == "no-store"


async def test_short_answers_records_with_a_tag_and_what_controllers_read_stay_as_they_are(
    plane: LonePlane, wire: aiohttp.ClientSession
) -> None:
    internal = plane.controller.headers
    for path in ("/api/session", f"/api/workers/{plane.worker_id}", "/api/internal/workers"):
        async with wire.get(path, headers={**internal, "Accept-Encoding": "gzip"}) as response:
            assert response.status == 200, path
            assert "Content-Encoding" not in response.headers, path
            assert json.loads(await response.read())


async def test_an_event_is_not_held_back_for_one_who_takes_compression(
    plane: LonePlane, wire: aiohttp.ClientSession
) -> None:
    async with wire.get("/api/events/stream", headers={"Accept-Encoding": "gzip, br"}) as stream:
        assert "Content-Encoding" not in stream.headers
        await plane.admin.create("news")
        received = b""
        async with timeout(PATIENCE_SECONDS):
            while b"news" not in received:
                received += (piece := await stream.content.readany())
                assert piece, "the stream has ended"
