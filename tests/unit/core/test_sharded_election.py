"""Two parts of a fleet with an election key each: what sharding of controllers by region would rest on."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from lcm.core.election import Election, LeaderElectionConfig
from lcm.core.health import Health
from lcm.core.hosted_service import HostedService
from lcm.core.ids import RandomIds
from support.core import LeadershipLog, Link, memory_kv, running
from support.virtual_time import VirtualClock

clock = VirtualClock()
SHARDS = ("eu-west-1", "us-east-1")
HOSTS = ("ada", "bob", "eve")
LOSSES = 40
CONFIG = LeaderElectionConfig()
TAKEOVER_SECONDS = CONFIG.retry_interval + CONFIG.call_timeout_seconds
"""A standby whose watch is silent notices after this."""


class Shard(HostedService):
    """What one process does for one shard: it watches its workers while it leads."""

    def __init__(self, name: str, shard: str, office: LeadershipLog, link: Link) -> None:
        self.name = name
        self._office = office
        config = LeaderElectionConfig(instance_id=name, service_name=f"worker-controller/{shard}")
        self.election = Election(
            config, link, clock=clock, health=Health(clock), trace_ids=RandomIds(Random(1))
        )

    async def run(self) -> None:
        await self.election.run(self._office.claim, self._watch)

    async def _watch(self) -> None:
        async with self._office.held_by(self.name):
            await asyncio.Event().wait()


class Controllers:
    """Every process campaigns for every shard, over one link of its own."""

    def __init__(self) -> None:
        self.kv = memory_kv(clock)
        self.offices = {shard: LeadershipLog(clock) for shard in SHARDS}
        self.links = {host: Link(self.kv, clock) for host in HOSTS}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._elections: dict[tuple[str, str], Election] = {}

    def start(self, host: str, tasks: asyncio.TaskGroup) -> None:
        shards = {
            shard: Shard(host, shard, office, self.links[host]) for shard, office in self.offices.items()
        }
        self._elections |= {(host, shard): each.election for shard, each in shards.items()}
        self._tasks[host] = [tasks.create_task(each.run()) for each in shards.values()]

    async def kill(self, host: str) -> None:
        """End the process without a word to the coordination store: its leases run out."""
        self.links[host].cut()
        for task in self._tasks[host]:
            task.cancel()
        await asyncio.wait(self._tasks[host])

    def resign(self, host: str, shard: str) -> None:
        self._elections[host, shard].resign()

    def leader(self, shard: str) -> str:
        (holder,) = self.offices[shard].holders
        return holder


async def lose_leaders(controllers: Controllers, chance: Random, tasks: asyncio.TaskGroup) -> None:
    """Lose a leader in one way or another, and have its process back before the next is lost."""
    for _ in range(LOSSES):
        await clock.sleep(chance.uniform(30, 60))
        shard = chance.choice(SHARDS)
        host = controllers.leader(shard)
        match chance.choice(("killed", "cut off", "frozen", "resigns")):
            case "killed":
                await controllers.kill(host)
                await clock.sleep(chance.uniform(0, 40))
                controllers.links[host].mend()
                controllers.start(host, tasks)
            case "cut off":
                controllers.links[host].cut()
                await clock.sleep(chance.uniform(0, 40))
                controllers.links[host].mend()
            case "frozen":
                controllers.links[host].freeze()
                await clock.sleep(chance.uniform(0, 40))
                controllers.links[host].mend()
            case _:
                controllers.resign(host, shard)


@pytest.mark.parametrize("seed", range(3))
async def test_no_shard_is_watched_twice_nor_unwatched_longer_than_the_lease_and_a_takeover(
    seed: int,
) -> None:
    controllers, chance = Controllers(), Random(seed)
    async with running(controllers.kv), asyncio.TaskGroup() as tasks:
        for host in HOSTS:
            controllers.start(host, tasks)
        await lose_leaders(controllers, chance, tasks)
        await clock.sleep(60)
        for host in HOSTS:
            await controllers.kill(host)
    for shard, office in controllers.offices.items():  # each fails by itself if two lead at once
        gaps = [after[1] - before[2] for before, after in pairwise(sorted(office.terms, key=lambda t: t[1]))]
        assert len(gaps) > LOSSES / 4, f"{shard}: leaders were hardly lost"
        print(f"FIGURE {shard}: {len(gaps)} leaders lost, unwatched for at most {max(gaps):.2f} s")
        assert min(gaps) >= 0
        assert max(gaps) <= CONFIG.lease_ttl + TAKEOVER_SECONDS
