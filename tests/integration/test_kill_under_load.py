"""kill -9 of a control plane that is written to: what was acknowledged is there after the next start.

Five writers that never pause, each with counters of its own; a life ends at a random moment of its first
tenths of a second, the next one is asked for everything that was ever acknowledged. `make soak-kill` runs
more lives with another seed.
"""

import asyncio
import contextlib
import json
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lcm.core.clock import SystemClock
from support.canaries import watched_session
from support.fleet import TEMPLATES
from support.forked import Forkery, forkery, kill

LIVES = int(os.environ.get("LCM_KILLS", "20"))
SEED = int(os.environ.get("LCM_KILL_SEED", "7"))
LONGEST_LIFE_SECONDS = 0.15
ENDLESS = 1_000_000


@dataclass
class ActivityLog:
    """What was acknowledged, by writer."""

    created: list[str] = field(default_factory=list)
    tags: int = 0
    tokens: list[str] = field(default_factory=list)
    setting: int = 0
    holds: int = 0

    @property
    def total(self) -> int:
        return len(self.created) + self.tags + len(self.tokens) + self.setting + self.holds


class Writers:
    """Write without a pause, and note what is acknowledged right when the answer comes."""

    def __init__(self, http: aiohttp.ClientSession, ledger: ActivityLog, life: int, worker_id: str) -> None:
        self._http = http
        self._ledger = ledger
        self._life = life
        self._worker = f"/api/workers/{worker_id}"
        self.first_answer = asyncio.Event()

    async def write(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for writer, times in (
                (self._create, 5),
                (self._issue_token, 2),
                (self._tag, ENDLESS),
                (self._hold, ENDLESS),
                (self._set, ENDLESS),
            ):
                tasks.create_task(self._repeat(writer, times))

    async def _repeat(self, write: Callable[[int], Awaitable[None]], times: int) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            for number in range(times):
                await write(number)
                self.first_answer.set()

    async def _acknowledged(self, method: str, path: str, body: Any, **headers: str) -> bool:
        async with self._http.request(method, path, json=body, headers=headers) as response:
            await response.read()
            assert response.status < 500, await response.text()
            return response.status < 300

    async def _create(self, number: int) -> None:
        name = f"w-{self._life}-{number}"
        if await self._acknowledged("POST", "/api/workers", {"name": name, "template_name": "small"}):
            self._ledger.created.append(name)

    async def _tag(self, number: int) -> None:
        wanted = self._ledger.tags + 1
        if await self._acknowledged("PUT", f"{self._worker}/tags", {"tags": {"n": str(wanted)}}):
            self._ledger.tags = wanted

    async def _hold(self, number: int) -> None:
        """On the same record as the tags: neither may undo the other."""
        wanted = self._ledger.holds + 1
        body = {"until": "2100-01-01T00:00:00Z", "reason": str(wanted)}
        if await self._acknowledged("PUT", f"{self._worker}/hold", body):
            self._ledger.holds = wanted

    async def _set(self, number: int) -> None:
        wanted = self._ledger.setting + 1
        change = {"ami_filter": str(wanted)}
        if await self._acknowledged("PATCH", "/api/settings/discovery", change, **{"If-Match": "*"}):
            self._ledger.setting = wanted

    async def _issue_token(self, number: int) -> None:
        name = f"t-{self._life}-{number}"
        if await self._acknowledged("POST", "/api/tokens", {"name": name, "role": "viewer"}):
            self._ledger.tokens.append(name)


async def everything(http: aiohttp.ClientSession, path: str) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    after = ""
    while True:
        async with http.get(f"{path}?limit=500{after}") as response:
            page = await response.json()
        found += page["items"]
        if not page.get("next"):
            return found
        after = f"&after={page['next']}"


async def check(http: aiohttp.ClientSession, ledger: ActivityLog) -> None:
    """Everything that was acknowledged is there; a write that was on its way may be there, too."""
    workers = {worker["name"]: worker for worker in await everything(http, "/api/workers")}
    assert set(ledger.created) <= workers.keys()
    [shared] = [worker for name, worker in workers.items() if name == "shared"]
    assert ledger.tags <= int(shared["tags"].get("n", 0)) <= ledger.tags + 1
    held = int(shared["hold"]["reason"]) if shared["hold"] else 0
    assert ledger.holds <= held <= ledger.holds + 1
    async with http.get("/api/settings/discovery") as response:
        setting = int((await response.json())["ami_filter"] or 0)
    assert ledger.setting <= setting <= ledger.setting + 1
    async with http.get("/api/tokens") as response:
        names = {token["name"] for token in (await response.json())["items"]}
    assert set(ledger.tokens) <= names
    # What was cut off and written all the same counts from now on.
    ledger.tags, ledger.holds, ledger.setting = int(shared["tags"].get("n", 0)), held, setting


def start(starter: Forkery, data_dir: Path) -> Any:
    return starter.start(
        "control-plane", "--port", "0", "--data-dir", str(data_dir), "--json", "--log-level", "ERROR",
        "--set", "API_REQUESTS_PER_SECOND=100000", "--set", f"WORKER_TEMPLATES_CONFIG_PATH={TEMPLATES}",
        "--set", f"REGIONS_CONFIG_PATH={TEMPLATES.parent / 'regions.yaml'}",
    )  # fmt: skip


@pytest.mark.timeout(600)
async def test_no_acknowledged_write_is_lost_however_often_the_control_plane_is_killed(
    tmp_path: Path,
) -> None:
    chance, ledger, clock = random.Random(SEED), ActivityLog(), SystemClock()
    worker_id = ""
    with forkery() as starter:
        for life in range(LIVES + 1):
            ready = start(starter, tmp_path)
            token = _admin_token(tmp_path)
            headers = {"Authorization": f"Bearer {token}"}
            async with watched_session(ready["url"], headers=headers) as http:
                if not worker_id:
                    body = {"name": "shared", "template_name": "small"}
                    async with http.post("/api/workers", json=body) as response:
                        worker_id = (await response.json())["id"]
                await check(http, ledger)
                writers = Writers(http, ledger, life, worker_id)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(writers.write())
                    await writers.first_answer.wait()
                    await clock.sleep(chance.uniform(0, LONGEST_LIFE_SECONDS))
                    kill(ready["pid"])
    with contextlib.closing(sqlite3.connect(tmp_path / "lcm.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    print(f"FIGURE kills={LIVES} acknowledged={ledger.total} lost=0 seed={SEED}")
    assert ledger.total > LIVES


def _admin_token(data_dir: Path) -> str:
    token: str = json.loads((data_dir / "keys.json").read_text())["admin"]
    return token
