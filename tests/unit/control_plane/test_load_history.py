"""The load of days: bounded, stored in batches, and the same at every control plane."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.keep_load_history import (
    INTERVAL_SECONDS,
    REMOVED_EVERY,
    LoadHistoryKeeper,
    remove_ended,
)
from lcm.control_plane.queries.load_history import load_history
from lcm.control_plane.records.load_history import LATE_SECONDS, RECENT_SECONDS, kind_of
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.domain.errors import NotFound
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import STOPPED, TERMINATED
from lcm.domain.load_history import HistoryRange
from lcm.domain.telemetry import Sample, SampleSource
from lcm.rest.schemas import HistoryPoint
from support.control_plane import control_plane_over
from support.core import running
from support.virtual_time import VirtualClock
from unit.control_plane.test_telemetry_reports import CountingStore, add

DAY, HOUR, WEEK = HistoryRange.DAY, HistoryRange.HOUR, HistoryRange.WEEK


class Plane:
    """A control plane that hears of samples as they are measured."""

    def __init__(self, store: MemoryStore) -> None:
        self.parts: ControlPlane = control_plane_over(store, clock=VirtualClock(), ids=RandomIds(Random(1)))
        self.records = self.parts.records
        self.histories = self.parts.records.load_histories

    async def start(self) -> "Plane":
        await self.parts.caches.worker_cache.load()
        return self

    def hear(self, cpu: float, *, ago: float = 0, **fields: Any) -> None:
        values: dict[str, Any] = {
            "worker_id": WorkerId("ada"),
            "collected_at": self.records.clock.now() - timedelta(seconds=ago),
            "source": SampleSource.WEBSOCKET,
            "cpu_utilization": cpu,
        }
        self.parts.caches.metrics.take_sample(Sample(**{**values, **fields}))

    async def measure(self, minutes: float, cpu: float = 50.0, *others: "Plane") -> None:
        """Hear of a sample every ten seconds, the others too."""
        for _ in range(int(minutes * 6)):
            for plane in (self, *others):
                plane.hear(cpu)
            await self.records.clock.sleep(10)

    async def points(self, span: HistoryRange = HOUR) -> Sequence[HistoryPoint]:
        return (await load_history(self.records, "ada", span)).points

    async def cpus(self, span: HistoryRange = HOUR) -> list[float | None]:
        return [point.cpu_utilization for point in await self.points(span)]

    def keeper(self) -> LoadHistoryKeeper:
        return LoadHistoryKeeper(self.records, self.parts.caches, Health(self.records.clock))


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
async def plane(store: CountingStore) -> Plane:
    plane = await Plane(store).start()
    await add(plane.parts, "ada")
    return plane


def writes(store: CountingStore) -> int:
    return sum(count for call, count in store.calls.items() if call.startswith("write load-history"))


async def test_the_load_of_a_worker_is_known_at_three_resolutions(plane: Plane) -> None:
    await plane.measure(4, 10.0)
    await plane.measure(4, 30.0)
    history = await load_history(plane.records, "ada", HOUR)
    assert (history.step_seconds, len(history.points)) == (10, 48)
    assert await plane.cpus(DAY) == [10.0, 10.0, 30.0, 30.0]
    assert await plane.cpus(WEEK) == [20.0]
    assert history.until - history.since == pytest.approx(3_600, abs=10)


async def test_no_sample_is_written_by_itself(plane: Plane, store: CountingStore) -> None:
    await plane.measure(5)
    assert writes(store) == 0
    await plane.histories.save()
    assert writes(store) == 2  # no interval of a quarter of an hour is over
    await plane.histories.save()
    assert writes(store) == 2


async def test_a_control_plane_that_starts_again_shows_what_was_measured_before(
    plane: Plane, store: CountingStore
) -> None:
    async with running(plane.keeper()):
        await plane.measure(30)
    restarted = await Plane(store).start()
    assert len(await restarted.cpus()) == 180
    assert await restarted.cpus(WEEK) == [50.0, 50.0]


async def test_a_crash_loses_no_more_than_what_came_after_the_last_pass(
    plane: Plane, store: CountingStore
) -> None:
    await plane.measure(10)
    await plane.histories.save()
    await plane.measure(3)
    known = await (await Plane(store).start()).cpus()
    assert 60 - 2 <= len(known) <= 60


async def test_an_orderly_stop_stores_what_is_not_over_too(plane: Plane, store: CountingStore) -> None:
    async with running(plane.keeper()):
        await plane.measure(1)
    assert await (await Plane(store).start()).cpus(WEEK) == [50.0]


async def test_a_stop_does_not_wait_for_a_store_that_is_away(plane: Plane, store: CountingStore) -> None:
    await plane.measure(1)
    async with running(plane.keeper()):
        store.loses_confirmations = True
        await plane.measure(1)
    store.loses_confirmations = False
    assert await plane.cpus(WEEK) == [50.0]


async def test_two_control_planes_keep_one_history(plane: Plane, store: CountingStore) -> None:
    other = await Plane(store).start()
    await plane.measure(4, 10.0, other)
    await plane.measure(4, 90.0)  # the other one heard of nothing for a while
    await plane.measure(4, 10.0, other)
    await plane.records.clock.sleep(LATE_SECONDS)
    await other.histories.save()
    await plane.histories.save()
    assert writes(store) == 2 * 2
    assert await plane.cpus(DAY) == await (await Plane(store).start()).cpus(DAY) == [10, 10, 90, 90, 10, 10]


async def test_a_control_plane_that_comes_later_writes_only_what_it_adds(
    plane: Plane, store: CountingStore
) -> None:
    other = await Plane(store).start()
    await plane.measure(6, 10.0, other)
    await plane.histories.save()
    store.calls.clear()
    await other.histories.save()
    assert writes(store) == 0


async def test_a_write_that_was_not_confirmed_is_repeated_without_harm(
    plane: Plane, store: CountingStore
) -> None:
    await plane.measure(6)
    await plane.records.clock.sleep(LATE_SECONDS)
    store.loses_confirmations = True
    with pytest.raises(StoreUnavailable):
        await plane.histories.save()
    store.loses_confirmations = False
    await plane.histories.save()
    assert await (await Plane(store).start()).cpus() == [50.0] * 36


async def test_what_could_not_be_stored_for_long_is_lost_and_takes_no_memory(plane: Plane) -> None:
    await plane.measure(60)
    assert len(await plane.cpus()) == RECENT_SECONDS / 10 + 2
    await plane.records.clock.sleep(4 * RECENT_SECONDS)
    plane.histories.retain(["ada"])
    assert await plane.cpus() == []


async def test_network_of_cloudwatch_joins_the_load_of_cml_although_it_comes_late(
    plane: Plane, store: CountingStore
) -> None:
    await plane.measure(10)
    await plane.histories.save()
    plane.hear(99.0, ago=300, source=SampleSource.CLOUDWATCH, network_in_bytes=4_000.0)
    await plane.records.clock.sleep(60)
    await plane.histories.save()
    restarted = await Plane(store).start()
    assert [point.network_in_bytes for point in await restarted.points(DAY)].count(4_000.0) == 1
    assert set(await restarted.cpus(DAY)) == {50.0}


async def test_a_worker_that_stops_keeps_its_history(plane: Plane) -> None:
    await plane.measure(5)
    await plane.records.workers.change("ada", lambda worker: replace(worker, status=STOPPED))
    assert len(await plane.cpus()) == 30


async def test_the_history_of_a_worker_is_removed_with_the_worker(plane: Plane, store: CountingStore) -> None:
    await plane.measure(20)
    await plane.histories.save()
    await plane.records.workers.change("ada", lambda worker: replace(worker, status=TERMINATED))
    async with running(plane.keeper()):
        await plane.records.clock.sleep(REMOVED_EVERY * INTERVAL_SECONDS + 1)
    assert [await store.list_all(kind_of(span)) for span in HistoryRange] == [[], [], []]
    assert await plane.points() == []


async def test_a_removal_that_was_cut_short_is_finished(plane: Plane, store: CountingStore) -> None:
    await plane.measure(40)
    await plane.histories.save()
    purged = await plane.records.workers.change("ada", lambda worker: replace(worker, status=TERMINATED))
    await plane.records.workers.purge(purged)
    for span in (WEEK, DAY):
        await store.delete(kind_of(span), "ada", (await stored(store, span)).version)
    await remove_ended(plane.records)
    assert await store.list_all(kind_of(HOUR)) == []


async def stored(store: MemoryStore, span: HistoryRange) -> Document:
    document = await store.get(kind_of(span), "ada")
    assert document is not None
    return document


async def test_a_history_in_another_form_is_started_anew(plane: Plane, store: CountingStore) -> None:
    await store.insert(Document(kind_of(HOUR), "ada", 1, b"\x09 of a newer version"))
    assert await plane.cpus() == []
    await plane.measure(2)
    await plane.records.clock.sleep(LATE_SECONDS)
    await plane.histories.save()
    assert len(await (await Plane(store).start()).cpus()) == 12


async def test_a_worker_that_nobody_knows_has_no_history(plane: Plane) -> None:
    with pytest.raises(NotFound):
        await load_history(plane.records, "grace", HOUR)
