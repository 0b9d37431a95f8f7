"""The operational routes of every process: the token of the metrics, their cost, and refused keys."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs

from lcm.core.telemetry import Telemetry
from lcm.web.operations import KeyCheck, MetricsPage
from support import asgi
from support.virtual_time import VirtualClock

TOKEN = "0123456789abcdef0123456789abcdef"


class CountingTelemetry(Telemetry):
    """Counts how often it is rendered."""

    rendered = 0

    def render(self) -> bytes:
        self.rendered += 1
        return b"rendered %d\n" % self.rendered


async def scrape(page: MetricsPage, authorization: str | None = None) -> tuple[int, bytes]:
    app = Starlette(routes=[Route("/metrics", page.show)])
    headers = {"authorization": authorization} if authorization is not None else {}
    return await asgi.request(app, "GET", "/metrics", headers, None)


async def test_metrics_are_rendered_once_a_second_however_often_they_are_asked_for() -> None:
    telemetry, clock = CountingTelemetry(), VirtualClock()
    page = MetricsPage(telemetry, clock)
    answers = {(await scrape(page))[1] for _ in range(100)}
    assert (answers, telemetry.rendered) == ({b"rendered 1\n"}, 1)
    await clock.sleep(1)
    assert await scrape(page) == (200, b"rendered 2\n")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        (None, 401),
        ("Bearer ", 401),
        ("Bearer guess", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer \xff", 401),
    ],
)
async def test_metrics_need_their_token_where_there_is_one(authorization: str | None, status: int) -> None:
    telemetry = CountingTelemetry()
    found, _ = await scrape(MetricsPage(telemetry, VirtualClock(), TOKEN), authorization)
    assert (found, telemetry.rendered) == (status, status == 200)
    assert (await scrape(MetricsPage(telemetry, VirtualClock()), authorization))[0] == 200


async def test_wrong_keys_are_logged_once_a_second_with_their_number() -> None:
    clock = VirtualClock()
    check = KeyCheck(TOKEN, clock)
    accepted: list[bool] = []

    async def show(request: Request) -> Response:
        accepted.append(check.accepts(request, request.headers.get("x-api-key", "")))
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/admin/stats", show)])
    with capture_logs() as lines:
        for _ in range(50):
            await asgi.request(app, "GET", "/admin/stats", {"x-api-key": "guess"}, None)
        await clock.sleep(1)
        await asgi.request(app, "GET", "/admin/stats", {"x-api-key": "guess"}, None)
        await asgi.request(app, "GET", "/admin/stats", {"x-api-key": TOKEN}, None)
    assert accepted == [*[False] * 51, True]
    refused = [line for line in lines if line["event"] == "key refused"]
    assert [line["count"] for line in refused] == [1, 50]
    assert "guess" not in str(refused)
