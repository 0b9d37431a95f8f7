"""The roster knows the newest version of every worker, in whatever order commits are confirmed."""

from msgspec.structs import replace

from lcm.control_plane.records.worker_cache import Roster
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Worker
from support.core import a_worker


async def no_workers() -> list[Worker]:
    return []


def version(number: int, **fields: object) -> Worker:
    return replace(a_worker(status=RUNNING), version=number, **fields)


def test_a_commit_that_is_confirmed_after_a_later_one_is_not_news() -> None:
    roster, newer = Roster(no_workers), version(5, status=STOPPED)
    roster.learn(newer)
    roster.learn(version(4))
    assert roster.knows(newer.id, 5)
    assert not roster.is_live(newer.id)


def test_a_commit_that_is_confirmed_after_the_workers_end_does_not_bring_it_back() -> None:
    roster = Roster(no_workers)
    roster.learn(version(4))
    roster.learn(version(6, status=TERMINATED))
    roster.learn(version(5))
    assert len(roster) == 0


async def test_records_that_were_read_before_a_worker_ended_do_not_bring_it_back() -> None:
    async def read_before() -> list[Worker]:
        roster.learn(version(6, status=TERMINATED))
        return [version(5)]

    roster = Roster(read_before)
    await roster.load()
    assert len(roster) == 0


def test_a_worker_of_the_same_id_after_a_purge_is_another_one() -> None:
    roster = Roster(no_workers)
    ended = version(6, status=TERMINATED)
    roster.learn(ended)
    roster.on_purge(ended)
    roster.learn(version(1))
    assert roster.is_live(ended.id)
