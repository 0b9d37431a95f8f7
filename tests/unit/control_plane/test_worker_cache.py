"""The worker_cache knows the newest version of every worker, in whatever order commits are confirmed."""

from msgspec.structs import replace

from lcm.control_plane.records.worker_cache import WorkerCache
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED
from lcm.domain.worker import Worker
from support.core import a_worker


async def no_workers() -> list[Worker]:
    return []


def version(number: int, **fields: object) -> Worker:
    return replace(a_worker(status=RUNNING), version=number, **fields)


def test_a_commit_that_is_confirmed_after_a_later_one_changes_nothing() -> None:
    worker_cache, newer = WorkerCache(no_workers), version(5, status=STOPPED)
    worker_cache.learn(newer)
    worker_cache.learn(version(4))
    assert worker_cache.knows(newer.id, 5)
    assert not worker_cache.is_live(newer.id)


def test_a_commit_that_is_confirmed_after_the_workers_end_does_not_bring_it_back() -> None:
    worker_cache = WorkerCache(no_workers)
    worker_cache.learn(version(4))
    worker_cache.learn(version(6, status=TERMINATED))
    worker_cache.learn(version(5))
    assert len(worker_cache) == 0


async def test_records_that_were_read_before_a_worker_ended_do_not_bring_it_back() -> None:
    async def read_before() -> list[Worker]:
        worker_cache.learn(version(6, status=TERMINATED))
        return [version(5)]

    worker_cache = WorkerCache(read_before)
    await worker_cache.load()
    assert len(worker_cache) == 0


def test_a_worker_of_the_same_id_after_a_purge_is_another_one() -> None:
    worker_cache = WorkerCache(no_workers)
    ended = version(6, status=TERMINATED)
    worker_cache.learn(ended)
    worker_cache.on_worker_purge(ended)
    worker_cache.learn(version(1))
    assert worker_cache.is_live(ended.id)
