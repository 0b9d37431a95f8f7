"""The client, in both forms, beside a running LCM: typed answers, typed errors, events without a gap."""

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from lcm.client import AccessDenied, AsyncLcm, Conflict, Lcm, NotFound, Standing, WaitFailed, WaitTimedOut
from lcm.client.cml import CertificateChanged, client_of
from lcm.core.blocking_clock import BlockingClock
from lcm.domain.lifecycle import WorkerStatus
from lcm.simulator.main import simulated_password
from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port
from support.processes import RunningLcm, running_lcm, running_simulator


async def test_a_worker_is_created_waited_for_and_deleted(lcm: RunningLcm) -> None:
    async with AsyncLcm(lcm.url, lcm.ready.token) as client:
        made = await client.workers.create("aio", "small", tags={"team": "x"})
        assert (made.name, made.tags) == ("aio", {"team": "x"})
        seen: list[str] = []

        def on_progress(_: str, standing: Standing) -> None:
            seen.append(standing.now)

        ready = await client.workers.wait(
            "aio", "ready", timeout_seconds=PATIENCE_SECONDS, on_progress=on_progress
        )
        assert ready is not None
        assert (ready.status, ready.cml_ready) == (WorkerStatus.RUNNING, True)
        assert seen[-1] == "running, CML answers"
        held = await client.workers.hold("aio", BlockingClock().now() + timedelta(hours=1), "exam")
        assert held.hold is not None
        assert [each.name for each in await client.workers.list_all()] == ["aio"]
        assert (await client.workers.explain("aio")).worker_id == made.id
        await client.workers.delete("aio")
        gone = await client.workers.wait(made.id, "deleted", timeout_seconds=PATIENCE_SECONDS)
        assert gone is not None
        assert gone.status is WorkerStatus.TERMINATED


def test_refusals_are_errors_that_say_what_is_possible(lcm: RunningLcm) -> None:
    with Lcm(lcm.url, lcm.ready.token, retry_seconds=0.0) as client:
        worker = client.workers.create("sync", "small")
        with pytest.raises(Conflict) as taken:
            client.workers.create("sync", "small")
        assert taken.value.kind == "name-taken"
        with pytest.raises(Conflict) as impossible:
            client.workers.retry(worker.id)
        assert "delete" in impossible.value.allowed
        with pytest.raises(NotFound):
            client.workers.get("nobody")
        with pytest.raises(WaitTimedOut, match=r"not reached within 0\.2 s"):
            client.workers.wait("sync", "licensed", timeout_seconds=0.2)
        client.workers.delete("sync")
        assert client.workers.wait(worker.id, "deleted", timeout_seconds=PATIENCE_SECONDS) is not None
        with pytest.raises(WaitFailed, match="it is deleted"):
            client.workers.wait(worker.id, "ready")
    with Lcm(lcm.url, "wrong") as client, pytest.raises(AccessDenied):
        client.who()


def test_the_cml_of_a_worker_is_used_with_its_pinned_certificate_alone(lcm: RunningLcm) -> None:
    with Lcm(lcm.url, lcm.ready.token) as client:
        client.workers.create("cisco", "small")
        client.workers.wait("cisco", "ready", timeout_seconds=PATIENCE_SECONDS)
        access = client.workers.cml_access("cisco")
        # In a process of its own: Cisco's client leaves its connections open.
        program = (
            "import sys; from lcm.client import Lcm; from lcm.client.cml import client_of\n"
            "url, token, password = sys.stdin.read().split()\n"
            "access = Lcm(url, token).workers.cml_access('cisco')\n"
            "print(client_of(access, 'admin', password).system_info()['ready'])"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            input=f"{lcm.url} {lcm.ready.token} {simulated_password(seed=0)}",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "True\n", done.stderr
        with pytest.raises(CertificateChanged, match="another certificate"):
            client_of(replace(access, certificate_sha256="00" * 32), "admin", "never sent")
        client.workers.delete("cisco")


def test_events_are_replayed_from_the_last_one_seen(lcm: RunningLcm) -> None:
    with Lcm(lcm.url, lcm.ready.token) as client:
        with client.events(types=["worker.created"]) as events:
            first = events.next(PATIENCE_SECONDS)
            assert first is not None
            assert first.type == "listening"
            created = client.workers.create("replayed", "small")
            while (event := events.next(PATIENCE_SECONDS)) is not None and event.type != "worker.created":
                pass
            assert event is not None
            assert event.worker is not None
            assert event.worker.id == created.id
        client.workers.create("missed", "small")
        with client.events(types=["worker.created"], last_event_id=event.id) as events:
            found = (
                event.worker
                for event in iter(lambda: events.next(1.0), None)
                if event.type == "worker.created"
            )
            assert [worker.name for worker in found if worker is not None] == ["missed"]
        for name in ("replayed", "missed"):
            client.workers.delete(name)


def test_a_wait_outlives_the_control_plane_that_it_listens_to(tmp_path: Path) -> None:
    with running_simulator() as cloud:
        options = ("--workers", "0", "--port", str(reserve_port()), "--data-dir", str(tmp_path))
        on_cloud = ("--aws-endpoint", cloud.info.aws_endpoint)
        reached: list[object] = []
        is_listening = threading.Event()

        def wait(client: Lcm) -> None:
            with client:
                found = client.workers.wait(
                    "patient",
                    "stopped",
                    timeout_seconds=4 * PATIENCE_SECONDS,
                    on_progress=lambda *_: is_listening.set(),
                )
                reached.append(found and found.status)

        with running_lcm(*options, *on_cloud) as first:
            client = Lcm(first.url, first.ready.token)
            client.workers.create("patient", "small")
            client.workers.wait("patient", "running", timeout_seconds=PATIENCE_SECONDS)
            waiting = threading.Thread(target=wait, args=(client,))
            waiting.start()
            assert is_listening.wait(PATIENCE_SECONDS)
            first.process.kill()
            first.process.wait()
        with running_lcm(*options, *on_cloud) as second:
            assert waiting.is_alive()
            with Lcm(second.url, second.ready.token) as other:
                other.workers.stop("patient")
            waiting.join(4 * PATIENCE_SECONDS)
        assert reached == [WorkerStatus.STOPPED]
