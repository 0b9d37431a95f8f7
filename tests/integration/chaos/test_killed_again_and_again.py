"""kill -9 at moments nobody chose, while people go on asking."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from lcm.domain.worker import Worker
from support.api import Json
from support.chaos import (
    MUTATING,
    NO_ANSWER,
    EndState,
    Life,
    Site,
    i11_every_acknowledged_request_is_kept,
    read_copy,
)

ROUNDS = 6
WORKERS = 8
CLIENTS = 8


class Script:
    """A person who wants something else of a worker every few moments; the same seed, the same whims."""

    def __init__(self, slot: int, chance: random.Random) -> None:
        self._slot = slot
        self._chance = chance
        self._worker: Json | None = None
        self._made = 0

    async def go_on(self, life: Life) -> None:
        """Until LCM dies. A wish whose answer was cut off may stand or not: ask for something else."""
        try:
            while True:
                await self._wish(life)
                await asyncio.sleep(self._chance.uniform(0.0, 0.3))  # noqa: TID251 - a person's pace
        except NO_ANSWER:
            return

    async def _wish(self, life: Life) -> None:
        if self._worker is None:
            self._made += 1
            self._worker = await life.create(f"slot-{self._slot}-{self._made}")
            return
        action = self._chance.choices(("stop", "start", "delete"), weights=(4, 4, 1))[0]
        worker = await life.see(self._worker)
        if action in worker["possible_actions"]:
            await life.act(worker, action)
        if action == "delete" or not worker["possible_actions"]:
            self._worker = None


async def test_six_kills_at_random_moments_leave_nothing_doubled_lost_or_forgotten(site: Site) -> None:
    chance = random.Random(20)
    scripts = [Script(slot, random.Random(slot)) for slot in range(WORKERS)]
    async with site.life() as life:
        await life.clear()
    for _ in range(ROUNDS):
        async with site.life() as life:
            fault = chance.choice(("lose_reply", "delay", "error"))
            await life.disturb(chance.choice(MUTATING), kind=fault, count=chance.randint(1, 3))
            async with asyncio.TaskGroup() as tasks:
                for script in scripts:
                    tasks.create_task(script.go_on(life))
                await asyncio.sleep(chance.uniform(0.2, 1.2))  # noqa: TID251 - the moment of death
                site.kill()
    async with site.life() as life:
        await life.heal()
        state = await life.prove()
        assert len(state.acknowledged) >= WORKERS


@pytest.mark.parametrize("acknowledgements", [20, 61, 102])
async def test_no_acknowledged_write_is_lost_when_the_control_plane_is_killed_under_load(
    acknowledgements: int, site: Site, tmp_path: Path
) -> None:
    answered = 0

    async def ask_until_it_dies(life: Life, client: int) -> None:
        nonlocal answered
        try:
            for number in range(1_000):
                worker = await life.create(f"load-{acknowledgements}-{client}-{number}")
                for action in ("stop", "start", "delete"):
                    answered += 1
                    if answered >= acknowledgements:
                        life.lcm.process.kill()  # the others still have requests on their way
                    await life.act(worker, action)
                answered += 1
        except NO_ANSWER:
            return

    async with site.life() as life:
        await life.clear()
        async with asyncio.TaskGroup() as tasks:
            for client in range(CLIENTS):
                tasks.create_task(ask_until_it_dies(life, client))
        site.kill()
    assert answered >= acknowledgements

    on_disk = read_copy(site.data_dir / "lcm.db", tmp_path)
    assert on_disk.integrity == "ok"
    assert lost(on_disk.records, site) == []

    async with site.life() as life:
        assert lost((await life.end_state()).records, site) == []
        await life.prove()


def lost(records: Sequence[Worker], site: Site) -> list[str]:
    return list(i11_every_acknowledged_request_is_kept(EndState(records, (), site.acknowledged)))
