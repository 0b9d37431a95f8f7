"""Commands beside canned answers: what a running LCM does too rarely to be waited for."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from lcm.cli import acting, declaring, reading
from lcm.client import AsyncLcm, Lcm, Unreachable
from lcm.domain.lablet.states import READY
from lcm.domain.lifecycle import DRAINING, RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.lablets import LabletSessionPage, LabletSessionView
from lcm.rest.plans import FieldChange, FleetPlan, PlannedRequest, PlannedStep, StepAction
from lcm.rest.schemas import CostDay, CostLine, CostReport, SessionView, TemplateList, WorkerPage, WorkerView
from support.canned_lcm import CannedLcm, Refusal, event
from support.core import a_worker
from support.lablets import session
from support.patience import PATIENCE_SECONDS

CONNECTED = event("connected", {"boot": "b", "workers": 1, "sessions": 0}, "b-1")
NOTHING = CostLine(
    key="", usd_per_hour=0, usd_this_month=0, usd_saved_this_month=0, running_hours_this_month=0,
    paused_hours_this_month=0,
)  # fmt: skip


@pytest.fixture
def lcm(monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedLcm]:
    canned = CannedLcm()
    with canned.running() as url:
        monkeypatch.setenv("LCM_URL", url)
        yield canned


class Reader(io.StringIO):
    """A person at a terminal who presses Ctrl-C at this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def write(self, text: str) -> int:
        if self._text in text:
            raise KeyboardInterrupt
        return super().write(text)


def viewed(worker: Worker) -> WorkerView:
    return WorkerView.of(worker)


def test_the_load_of_a_busy_fleet_is_shown(lcm: CannedLcm, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = {"worker_id": "w-1", "cpu_utilization": 7.0}
    lcm.answers["GET /api/workers"] = [WorkerPage(items=[viewed(a_worker(status=RUNNING))])]
    snapshot = event("worker.metrics.updated", {**sample, "cpu_utilization": 3.0})
    lcm.streams = [lcm.busy([CONNECTED, snapshot], event("worker.metrics.updated", sample, "b-2"))]
    monkeypatch.setattr("sys.stdout", Reader("lab-1"))
    with pytest.raises(KeyboardInterrupt):
        reading.top(watch=True)


def test_the_events_of_now_end_with_the_first_new_one(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = event("worker.snapshot", {"worker": viewed(a_worker(name="now"))}, "b-1")
    lcm.streams = [lcm.busy([CONNECTED, snapshot], event("worker.paused", {"worker_id": "later"}, "b-2"))]
    reading.events()
    shown = capsys.readouterr().out
    assert "now" in shown
    assert "later" not in shown


def test_a_change_while_a_watch_begins_is_printed(lcm: CannedLcm, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = a_worker(status=RUNNING), a_worker(status=STOPPED, version=2)
    lcm.answers["GET /api/workers"] = [WorkerPage(items=[viewed(each)]) for each in (before, after)]
    lcm.streams = [lcm.quiet(CONNECTED, event("worker.snapshot", {"worker": viewed(after)}, "b-1"))]
    monkeypatch.setattr("sys.stdout", Reader("stopped"))
    with pytest.raises(KeyboardInterrupt):
        reading.get("workers", watch=True)


def test_sessions_are_listed_with_names_where_there_are_some(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [
        session("mine", worker_id="w-1", owner_id="key:1"),
        session("ours", worker_id="purged-long-ago", owner_id="oidc:7"),
        session("old", worker_id="w-9", owner_id="oidc:7"),
        session("old2", worker_id="w-9", owner_id="oidc:7"),
    ]
    page = LabletSessionPage(items=[LabletSessionView.of(each) for each in listed])
    lcm.answers["GET /api/lablet-sessions"] = [page]
    lcm.answers["GET /api/workers"] = [WorkerPage(items=[viewed(a_worker(status=RUNNING))])]
    lcm.answers["GET /api/workers/purged-long-ago"] = [Refusal(404)]
    lcm.answers["GET /api/workers/w-9"] = [viewed(a_worker(id="w-9", name="lab-9", status=TERMINATED))]
    lcm.answers["GET /api/session"] = [SessionView(id="key:1", actor="ada", role="admin")]
    reading.get("sessions")
    rows = [row.split() for row in capsys.readouterr().out.splitlines()[1:]]
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("mine", "ada", "lab-1"),
        ("ours", "oidc:7", "purged-l"),
        ("old", "oidc:7", "lab-9"),
        ("old2", "oidc:7", "lab-9"),
    ]
    assert [request.partition("?")[0] for request in lcm.requests] == [
        "GET /api/lablet-sessions",
        "GET /api/session",
        "GET /api/workers",
        "GET /api/workers/purged-long-ago",
        "GET /api/workers/w-9",
    ]
    assert not any("include_terminated" in request for request in lcm.requests), "there may be very many"


def test_a_retried_session_is_waited_for_under_its_new_id(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    new = LabletSessionView.of(session("new", status=READY))
    lcm.answers["GET /api/lablet-sessions/old"] = [LabletSessionView.of(session("old"))]
    lcm.answers["POST /api/lablet-sessions/old/retry"] = [new]
    lcm.answers["GET /api/lablet-sessions/new"] = [new]
    lcm.streams = [lcm.quiet(CONNECTED)]
    acting.retry(["session/old"], wait=True)
    assert capsys.readouterr().out.splitlines() == [
        "session/old retry accepted",
        "session/new created in its place",
        "session/new ready",
    ]


def test_a_dry_run_of_a_cancelled_drain_says_that_it_is_possible(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    lcm.answers["GET /api/workers/lab-1"] = [viewed(a_worker(status=DRAINING))]
    lcm.answers["GET /api/worker-templates"] = [TemplateList(items=[])]
    cost = CostReport(month="2026-01", total=NOTHING, by_worker=[], by_template=[], by_region=[])
    lcm.answers["GET /api/cost"] = [cost]
    acting.drain(["lab-1"], cancel=True, dry_run=True)
    assert "would accept" in capsys.readouterr().out


def test_the_cost_of_a_month_names_disks_of_unknown_cost_and_is_shown_by_day(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    total = replace(NOTHING, key="total", usd_this_month=12.0, usd_disk_this_month=4.0, unknown_disks=2)
    unknown = replace(NOTHING, key="small", usd_disk_this_month=None, unknown_disks=2)
    day = CostDay(day="2026-01-02", usd=12.0, usd_disk=4.0, usd_saved=0.5)
    cost = CostReport(
        month="2026-01", total=total, by_worker=[], by_template=[unknown], by_region=[], days=[day]
    )
    lcm.answers["GET /api/cost"] = [cost, cost]
    reading.cost(by="template", month="2026-01")
    shown = capsys.readouterr().out.splitlines()
    assert "unknown" in shown[1]
    assert "$4.00 + 2 unknown" in shown[2]
    reading.cost(by="day")
    assert capsys.readouterr().out.splitlines()[1].split() == ["2026-01-02", "$12.00", "$4.00", "$0.50"]


def test_what_was_created_before_a_refusal_is_printed(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str]
) -> None:
    lcm.answers["POST /api/workers"] = [viewed(a_worker(name="first")), Refusal(409, "the name is taken")]
    with pytest.raises(SystemExit):
        acting.create_worker(["first", "second"], template="small")
    shown = capsys.readouterr()
    assert shown.out == "worker/first created\n"
    assert "the name is taken" in shown.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (partial(acting.delete, ["token/t"], yes=True, wait=True), "wait for workers, or for sessions"),
        (partial(acting.delete, ["lab-1"], yes=True, wait=True, timeout="soon"), "not a duration"),
        (partial(acting.delete, ["lab-1", "session/s"]), "Delete 1 worker and 1 session?"),
    ],
)
def test_a_wrong_command_line_changes_nothing(
    lcm: CannedLcm, capsys: pytest.CaptureFixture[str], command: Callable[[], None], says: str
) -> None:
    lcm.answers["GET /api/tokens"] = [{"items": [TOKEN]}]
    lcm.answers["GET /api/workers/lab-1"] = [viewed(a_worker(status=RUNNING))]
    lcm.answers["GET /api/lablet-sessions/s"] = [LabletSessionView.of(session("s"))]
    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
    assert all(request.startswith("GET ") for request in lcm.requests)


TOKEN = {
    "id": "t", "name": "t", "role": "viewer", "created_at": "2026-01-01T00:00:00Z", "created_by": "ada",
    "expires_at": None, "last_used_at": None,
}  # fmt: skip


def test_a_release_of_licenses_is_not_waited_for(lcm: CannedLcm, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        acting.license_workers(["lab-1"], release_it=True, wait=True)
    assert "--release" in capsys.readouterr().err
    assert lcm.requests == []


def test_a_failed_wait_names_the_one_that_failed(lcm: CannedLcm, capsys: pytest.CaptureFixture[str]) -> None:
    lcm.answers["GET /api/workers/lab-1"] = [viewed(a_worker())]
    lcm.answers["GET /api/workers/w-1"] = [Refusal(404)]
    lcm.streams = [lcm.quiet(CONNECTED)]
    with pytest.raises(SystemExit):
        acting.wait_for(["lab-1"])
    assert "worker/lab-1: it is deleted" in capsys.readouterr().err


def test_a_request_that_may_not_be_repeated_is_not_sent_on_a_connection_that_was_closed() -> None:
    lcm = CannedLcm(closes_unasked=True)
    lcm.answers["POST /api/tokens"] = [{"token": "shown once", "details": TOKEN}]
    with lcm.running() as url, Lcm(url, retry_seconds=0.0) as client:
        for _ in range(2):
            assert client.tokens.create("t", "viewer").details.name == "t"
            assert lcm.closed.wait(PATIENCE_SECONDS)
            lcm.closed.clear()
    with pytest.raises(Unreachable) as away:
        client.tokens.create("t", "viewer")
    assert not away.value.was_sent


def test_files_are_applied_and_waited_for_though_one_step_is_refused(
    lcm: CannedLcm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.yaml").write_text("kind: worker\nname: lab-1\n")
    described = FieldChange(field="tags.team", before="a\x1b[2Jb", after="c")
    steps = [
        PlannedStep(
            kind="worker",
            name=name,
            action=StepAction.CREATE,
            changes=(described,),
            requests=(PlannedRequest(method="POST", path=f"/api/{name}", idempotency_key=name),),
        )
        for name in ("refused", "lab-1")
    ]
    lcm.answers["POST /api/plan"] = [FleetPlan(steps=tuple(steps), usd_per_hour_now=0, usd_per_hour_after=1)]
    lcm.answers["POST /api/refused"] = [Refusal(409, "the fleet has its maximum")]
    lcm.answers["POST /api/lab-1"] = [{}]
    ready = viewed(a_worker(status=RUNNING, cml_ready=True))
    lcm.answers |= {f"GET /api/workers/{key}": [ready] for key in ("lab-1", "w-1")}
    lcm.streams = [lcm.quiet(CONNECTED)]
    with pytest.raises(SystemExit) as ended:
        declaring.apply([str(tmp_path / "fleet.yaml")], wait=True)
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (1, "worker/lab-1 created\nworker/lab-1 ready\n")
    assert "the fleet has its maximum" in shown.err
    declaring.apply([str(tmp_path / "fleet.yaml")], dry_run=True)
    assert "tags.team: a [2Jb -> c" in capsys.readouterr().out


async def test_a_wait_outlives_a_proxy_that_cannot_reach_lcm() -> None:
    """While a control plane restarts behind it, it answers 502 or 503 itself."""
    lcm = CannedLcm()
    lcm.answers["GET /api/workers/w-1"] = [
        viewed(a_worker()),
        Refusal(503),
        *[viewed(a_worker(status=RUNNING, cml_ready=True))],
    ]
    lcm.streams = [Refusal(502), lcm.quiet(CONNECTED)]
    with lcm.running() as url:
        async with AsyncLcm(url, retry_seconds=0.0) as client:
            found = await client.workers.wait("w-1", "ready", timeout_seconds=60)
        assert found is not None
        with Lcm(url, retry_seconds=0.0) as synchronous:
            lcm.answers["GET /api/workers/w-1"][:0] = [viewed(a_worker()), Refusal(503)]
            lcm.streams[:0] = [Refusal(503)]
            assert synchronous.workers.wait("w-1", "ready", timeout_seconds=60) is not None
