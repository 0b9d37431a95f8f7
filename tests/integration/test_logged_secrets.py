"""The access keys are masked in the control plane's log, even if somebody logs one by mistake."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from lcm.control_plane.main import control_plane_process
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.rest.documents import fetch_document
from support.core import running
from support.fleet import REGION, TEMPLATES
from support.logged import real_logging

ROLES = ("viewer", "operator", "admin", "controller")


async def open_and_close(data_dir: Path, controller_key: str | None = None) -> None:
    clock, ids = SystemClock(), RandomIds()
    settings = ControlPlaneSettings(
        port=0,
        data_dir=data_dir,
        worker_templates_config_path=TEMPLATES,
        control_plane_api_key=SecretStr(controller_key or ""),
    )
    kv = MemoryKv(clock, ids)
    async with (
        control_plane_process(settings, kv, clock, ids, {"us-east-1": REGION}, fetch_document) as process,
        running(kv, *process.services),
    ):
        pass


@pytest.mark.parametrize("role", ROLES)
async def test_an_access_key_is_masked(role: str, tmp_path: Path) -> None:
    keys = {each: f'k7 of {each} "{tmp_path.name}\\+/=' for each in ROLES}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    with real_logging("json") as log:
        assert "plain" in log.shows(keys[role])
        await open_and_close(tmp_path)
        assert log.shows(keys[role]) == []


async def test_a_given_key_of_the_controllers_is_masked(tmp_path: Path) -> None:
    given = f"given to all controllers of {tmp_path.name}"
    with real_logging("human") as log:
        await open_and_close(tmp_path, given)
        assert log.shows(given) == []


async def test_keys_made_at_the_first_start_are_masked(tmp_path: Path) -> None:
    with real_logging("json") as log:
        await open_and_close(tmp_path)
        made = json.loads((tmp_path / "keys.json").read_text())
        assert {role: log.shows(made[role]) for role in ROLES} == {role: [] for role in ROLES}
