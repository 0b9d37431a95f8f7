"""Starting, stopping and being told wrong things, as a person at a terminal sees it."""

import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from support.canaries import watched_session
from support.patience import PATIENCE_SECONDS
from support.processes import eventually, lcm_to_its_end, running_lcm


async def is_silent(url: str) -> bool:
    try:
        async with watched_session() as session, session.get(url):
            return False
    except aiohttp.ClientError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_everything_with_exit_code_0_and_no_stack_trace(number: signal.Signals) -> None:
    with running_lcm("--workers", "2") as lcm:
        endpoint = str(lcm.ready.aws_endpoint)
        assert not await is_silent(endpoint)
        lcm.process.send_signal(number)
        assert lcm.process.wait(timeout=PATIENCE_SECONDS) == 0
        assert await is_silent(lcm.url)
        assert await is_silent(endpoint)
        assert "Traceback" not in lcm.stderr()


async def test_a_signal_during_the_start_ends_it_just_as_quietly() -> None:
    command = [sys.executable, "-m", "lcm", "up", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        async def has_a_child() -> bool:
            return bool(children.read_text())

        await eventually(has_a_child)
        process.send_signal(signal.SIGINT)
        out, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, complaints) == (0, "", "")


async def test_the_simulator_does_not_outlive_a_killed_lcm() -> None:
    with running_lcm("--workers", "0") as lcm:
        lcm.process.kill()
        lcm.process.wait()
        await eventually(lambda: is_silent(str(lcm.ready.aws_endpoint)))


async def test_an_open_stream_does_not_hold_up_the_end() -> None:
    with running_lcm("--workers", "0") as lcm:
        headers = {"Authorization": f"Bearer {lcm.ready.token}"}
        async with (
            watched_session(lcm.url, headers=headers) as session,
            session.get("/api/events/stream") as response,
        ):
            assert response.status == 200
            lcm.process.terminate()
            rest = await response.content.read()
            assert b"event: system.sse.shutdown" in rest
        assert lcm.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_nothing_is_written_outside_the_data_directory(tmp_path: Path) -> None:
    home, elsewhere, data = tmp_path / "home", tmp_path / "tmp", tmp_path / "data"
    for directory in (home, elsewhere):
        directory.mkdir()
    with running_lcm("--workers", "1", "--data-dir", str(data), HOME=str(home), TMPDIR=str(elsewhere)):
        pass
    assert list(home.iterdir()) == []
    assert list(elsewhere.iterdir()) == []
    assert {"keys.json", "lcm.db"} <= {path.name for path in data.iterdir()}


def test_a_simulation_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_lcm("--workers", "1", TMPDIR=str(tmp_path)) as lcm:
        assert Path(lcm.ready.data_dir).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_it_keeps_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with running_lcm("--workers", "0", "--data-dir", str(tmp_path)):
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert {"keys.json", "lcm.db", "control-plane.url"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes


def test_the_ready_line_has_all_a_script_needs() -> None:
    with running_lcm("--workers", "0") as lcm:
        ready = lcm.ready
        assert ready.url.startswith(f"{lcm.url}/?code=")
        assert ready.token not in ready.url
        assert ready.pid == lcm.process.pid
        assert {"control_plane", "worker_controller", "resource_scheduler", "cml"} <= set(ready.ports)
        assert all(0 < port < 65536 for port in ready.ports.values())


async def test_the_keys_and_workers_are_there_after_a_restart(tmp_path: Path) -> None:
    with running_lcm("--workers", "2", "--data-dir", str(tmp_path)) as lcm:
        first = lcm.ready.token
    with running_lcm("--workers", "2", "--data-dir", str(tmp_path)) as lcm:
        assert lcm.ready.token == first
        headers = {"Authorization": f"Bearer {first}"}
        async with (
            watched_session(lcm.url, headers=headers) as session,
            session.get("/api/workers") as response,
        ):
            assert len((await response.json())["items"]) == 2


def lcm_fails(*arguments: str) -> str:
    done = lcm_to_its_end(*arguments)
    assert done.code != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_taken_port_is_said_in_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        complaint = lcm_fails("up", "--port", str(taken.getsockname()[1]), "--workers", "0")
    assert "choose another port" in complaint


def test_an_endpoint_where_nobody_answers_is_said_in_one_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        complaint = lcm_fails("up", "--aws-endpoint", f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert "nothing answers" in complaint


def test_a_missing_region_file_is_said_in_one_sentence(tmp_path: Path) -> None:
    complaint = lcm_fails("up", "--no-simulator", "--regions", str(tmp_path / "nowhere.yaml"))
    assert "nowhere.yaml" in complaint


def test_a_database_of_another_version_is_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "lcm.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    before = (tmp_path / "lcm.db").read_bytes()
    complaint = lcm_fails("up", "--port", "0", "--workers", "0", "--data-dir", str(tmp_path))
    assert "schema 99" in complaint
    assert (tmp_path / "lcm.db").read_bytes() == before


def test_up_tells_what_is_wrong_in_the_environment_and_repeats_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEADER_LEASE_TTL", "2")
    monkeypatch.setenv("CML_DEFAULT_PASSWORD", "open sesame")
    complaint = lcm_fails("up", "--no-simulator")
    assert "LEADER_LEASE_TTL must be at least 3 seconds" in complaint
    assert "sesame" not in complaint


def test_settings_are_shown_as_they_are_brackets_included() -> None:
    told = {"ETCD_ENDPOINTS": "[fe80::1]:2379", "WORKER_DISCOVERY_AMI_FILTER": "CML-[/2.9]*"}
    options = [part for name, value in told.items() for part in ("--set", f"{name}={value}")]
    shown = lcm_to_its_end("config", "worker-controller", *options)
    assert shown.code == 0, shown.stderr
    assert all(value in shown.stdout for value in told.values())


def test_a_directory_without_an_lcm_is_named_as_it_is_brackets_included() -> None:
    complaint = lcm_fails("token", "list", "--data-dir", "/nowhere/[bold]/[/x]")
    assert "/nowhere/[bold]/[/x] is not the data directory of a running LCM" in complaint
