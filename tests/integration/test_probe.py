"""`lcm probe cml` on the simulator: what holds, what fails where it deviates, and what is never written."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lcm.cli.probe import Probed, Server, probe, server_at
from lcm.domain.diagnosis import Verdict
from support.canaries import Canaries
from support.processes import RunningSimulator, lcm_to_its_end, running_simulator

API = "/api/v0"
SECRET = "Zx9-canary-77"


class Bench:
    """One simulated server, and the means to let it deviate."""

    def __init__(self, simulator: RunningSimulator, http: aiohttp.ClientSession) -> None:
        self.info = simulator.info
        [self.worker] = simulator.info.workers
        self.server = Server(self.worker.private_ip, simulator.info.cml_port)
        self._http = http

    async def control(self, method: str, name: str, body: Any = None) -> Any:
        async with self._http.request(method, f"{self.info.control_url}/cml/{name}", json=body) as response:
            response.raise_for_status()
            return await response.json() if response.status == 200 else None

    async def deviate(self, **fault: Any) -> None:
        await self.control("POST", "faults", fault)

    async def answer(self, path: str, body: Any, status: int = 200, **more: Any) -> None:
        await self.deviate(kind="answer", path=f"{API}/{path}", body=body, status=status, **more)

    async def probe(self, password: str | None = None) -> Probed:
        return await probe(self.server, self.worker.username, password or self.worker.password, 0.0)

    async def counters(self) -> dict[str, int]:
        worker: dict[str, Any] = await self.control("GET", f"workers/{self.worker.instance_id}")
        counters: dict[str, int] = worker["counters"]
        return counters


def did_not_hold(probed: Probed) -> set[str]:
    return {each.check for each in probed.findings if each.verdict is Verdict.FAILED}


@pytest.fixture(scope="module")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator("--workers", "1", "--no-people") as running:
        yield running


@pytest.fixture
async def bench(simulator: RunningSimulator) -> AsyncIterator[Bench]:
    async with aiohttp.ClientSession() as http:
        bench = Bench(simulator, http)
        await bench.control("PATCH", "workers", {"stats_seconds": 0.1, "auth_seconds": 2})
        yield bench
        await bench.control("DELETE", "faults")


async def test_on_the_simulator_every_assumption_holds(bench: Bench) -> None:
    probed = await bench.probe()
    assert [each for each in probed.findings if each.verdict is not Verdict.OK] == []
    assert "CML 2.9.1+build.7" in probed.report
    assert "did not hold" not in probed.report


async def test_a_probe_changes_nothing(bench: Bench) -> None:
    before = await bench.control("GET", f"workers/{bench.worker.instance_id}")
    await bench.probe()
    after = await bench.control("GET", f"workers/{bench.worker.instance_id}")
    assert after["labs"] == before["labs"]
    assert after["is_licensed"] == before["is_licensed"]
    assert after["listeners"] == 0


def entry(category: str, timestamp: str) -> dict[str, Any]:
    """Of the telemetry."""
    return {"category": category, "timestamp": timestamp, "data": {SECRET: SECRET}}


STATS = {"all": {"cpu": {"percent": 1}, "memory": {"used": 1, "total": 2}, "disk": {"used": 1, "total": 2}}}


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("system_information", {"version": "2.9.1", "is_ready": True}, 200, {"information"}),
        ("system_information", {"version": "2.6.0", "ready": True}, 200, {"feed-by-version"}),
        ("system_stats", STATS, 200, {"load"}),
        ("system_health", {"valid": True, "computes": {}}, 200, {"health", "kvm"}),
        ("licensing", {"registration": {"status": "MAYBE"}}, 200, {"licensing", "licensing-words"}),
        ("telemetry/events", {"events": []}, 200, {"telemetry"}),
        (
            "telemetry/events",
            [{"category": "new_one", "timestamp": "2026-01-01"}],
            200,
            {"telemetry-categories"},
        ),
        ("telemetry/events", [{"category": "start_lab", "timestamp": "noon"}], 200, {"telemetry"}),
        ("telemetry/events", None, 500, {"telemetry"}),
    ],
)
async def test_a_deviating_answer_breaks_the_assumption_about_it(
    bench: Bench, path: str, body: Any, status: int, expected: set[str]
) -> None:
    await bench.answer(path, body, status)
    assert did_not_hold(await bench.probe()) == expected


async def test_declined_telemetry_is_noticed(bench: Bench) -> None:
    await bench.deviate(kind="answer", path=f"{API}/telemetry", method="GET", count=1, body={"opt_in": False})
    assert did_not_hold(await bench.probe()) == {"telemetry-on"}


async def test_other_codes_for_wrong_logins_and_tokens_are_noticed(bench: Bench) -> None:
    await bench.answer("authenticate", {"detail": "no"}, 401, count=1)
    await bench.answer("authok", {"detail": "no"}, 403, count=1)
    assert did_not_hold(await bench.probe()) == {"wrong-login", "wrong-token", "error-text"}


async def test_a_refused_login_leaves_unseen_what_needs_one(bench: Bench) -> None:
    probed = await bench.probe(password="not-the-password")
    assert did_not_hold(probed) == {"login"}
    unseen = {each.check for each in probed.findings if each.verdict is Verdict.UNKNOWN}
    assert {"token-life", "licensing", "telemetry", "feed-first", "feed-wrong-token"} <= unseen


async def test_a_token_that_dies_early_is_noticed(bench: Bench) -> None:
    await bench.deviate(kind="expired_token", lasting=True)
    assert {"token-life", "token-accepted", "token-lasts"} <= did_not_hold(await bench.probe())


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"event_type": "a_kind_of_tomorrow", "data": 1}, {"feed-types"}),
        ({"event_type": "lab_event", "lab_id": 7}, {"feed-valid"}),
        ({"data": STATS, "event_type": "system_stats"}, {"feed-head"}),
    ],
)
async def test_deviating_frames_break_the_assumption_about_them(
    bench: Bench, event: dict[str, Any], expected: set[str]
) -> None:
    await bench.deviate(kind="greeting", event=event)
    assert did_not_hold(await bench.probe()) == expected


async def test_a_feed_that_is_closed_is_noticed_by_its_code(bench: Bench) -> None:
    await bench.deviate(kind="close", code=1012, reason=SECRET, lasting=True)
    probed = await bench.probe()
    assert did_not_hold(probed) == {"feed-lasts"}
    assert "closed with 1012" in probed.report


async def test_a_server_that_does_not_answer_is_known_by_nothing(bench: Bench) -> None:
    await bench.deviate(kind="refuse")
    probed = await bench.probe()
    assert {each.verdict for each in probed.findings} == {Verdict.UNKNOWN}


async def test_no_secret_of_the_server_is_in_the_report(bench: Bench) -> None:
    """Every place where CML has names, ids and texts of people."""
    lab = await bench.control("POST", f"workers/{bench.worker.instance_id}/labs", {"title": SECRET})
    await bench.answer("system_health", {SECRET: SECRET, "computes": {SECRET: {"hostname": SECRET}}})
    await bench.answer(
        "licensing", {"registration": {"status": SECRET, SECRET: 1}, "udi": {"hostname": SECRET}}
    )
    await bench.answer(
        "telemetry/events",
        [{"category": SECRET, "timestamp": SECRET, "data": {SECRET: SECRET}}, {"x": SECRET}],
    )
    await bench.answer("telemetry", {"opt_in": SECRET, SECRET: [SECRET]})
    await bench.answer("system_information", {"version": f"2.9.1-{SECRET}", "ready": True, SECRET: SECRET})
    await bench.deviate(kind="greeting", event={"event_type": SECRET, "data": {SECRET: SECRET}})
    await bench.deviate(kind="close", code=1012, reason=SECRET, lasting=True)
    probed = await bench.probe()
    canaries = Canaries(
        {
            "secret of the server": SECRET,
            "password": bench.worker.password,
            "address": bench.worker.private_ip,
            "lab": lab["lab_id"],
        }
    )
    canaries.collect("the report", probed.report)
    canaries.collect("the findings", repr(probed.findings))
    assert canaries.found() == []


def test_the_canary_would_be_found() -> None:
    canaries = Canaries({"secret": SECRET})
    canaries.collect("a report", f"| x | {SECRET} |")
    assert canaries.found() != []


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://cml.example.org", Server("cml.example.org", 443)),
        ("https://10.0.0.7:8443/", Server("10.0.0.7", 8443)),
        ("http://cml.example.org", None),
        ("cml.example.org", None),
        ("https://admin:x@cml.example.org", None),
        ("https://cml.example.org:port", None),
    ],
)
def test_an_address_of_cml_is_https_and_has_no_password(url: str, server: Server | None) -> None:
    assert server_at(url) == server


async def test_the_command_writes_the_report_and_exits_by_the_worst(bench: Bench, tmp_path: Path) -> None:
    url = f"https://{bench.server.host}:{bench.server.port}"
    report = tmp_path / "report.md"
    arguments = ("probe", "cml", url, "--minutes", "0", "--report", str(report))
    ended = lcm_to_its_end(*arguments, CML_WORKER_API_PASSWORD=bench.worker.password)
    assert (ended.code, ended.stderr) == (0, "")
    assert "0 failed, 0 unknown" in ended.stdout
    assert report.read_text().startswith("# Probe of a CML server")
    refused = lcm_to_its_end(*arguments, CML_WORKER_API_PASSWORD="another")
    assert refused.code == 1
    without = lcm_to_its_end(*arguments)
    assert without.code != 0
    assert "CML_WORKER_API_PASSWORD" in without.stderr
