"""A page of workers shows each as it is now, though its view is encoded only when its record changes."""

import msgspec
from msgspec.structs import replace

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.queries.workers import list_workers, page_of_workers
from lcm.control_plane.records.worker_views import WorkerViews
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED
from lcm.rest.schemas import WorkerPage, WorkerView
from support.core import a_worker


async def page(plane: ControlPlane, **cursor: str) -> WorkerPage:
    workers = await list_workers(plane.records, include_terminated=True)
    found = page_of_workers(workers, plane.caches.worker_views, limit=2, after=cursor.get("after"))
    return msgspec.json.decode(msgspec.json.encode(found), type=WorkerPage)


async def test_a_page_shows_every_worker_as_it_is_now(plane: ControlPlane) -> None:
    workers = plane.records.workers
    for number in range(2):
        await workers.add(a_worker(id=WorkerId(f"w{number}"), name=f"lab-{number}", status=RUNNING))
    await page(plane)
    changed = await workers.change("w0", lambda worker: replace(worker, status=STOPPED))
    assert (await page(plane)).items == [WorkerView.of(changed), WorkerView.of(await workers.get("w1"))]


async def test_pages_follow_each_other_by_their_cursor(plane: ControlPlane) -> None:
    for number in range(3):
        await plane.records.workers.add(a_worker(id=WorkerId(f"w{number}"), name=f"lab-{number}"))
    first = await page(plane)
    assert [worker.name for worker in first.items] == ["lab-0", "lab-1"]
    assert first.next is not None
    last = await page(plane, after=first.next)
    assert ([worker.name for worker in last.items], last.next) == (["lab-2"], None)


async def test_a_worker_of_the_same_id_after_a_purge_has_its_own_view(plane: ControlPlane) -> None:
    workers = plane.records.workers
    await page(plane)
    gone = await workers.add(a_worker(id=WorkerId("w0"), name="gone", status=TERMINATED))
    assert [worker.name for worker in (await page(plane)).items] == ["gone"]
    await workers.purge(gone)
    again = await workers.add(a_worker(id=WorkerId("w0"), name="again"))
    assert again.version == gone.version
    assert (await page(plane)).items == [WorkerView.of(again)]


async def test_the_view_of_an_unchanged_worker_is_encoded_once(plane: ControlPlane) -> None:
    await plane.records.workers.add(a_worker())
    views = plane.caches.worker_views
    encoded = [[views.of(worker) for worker in await list_workers(plane.records)] for _ in range(2)]
    assert encoded[0][0] is encoded[1][0]


def test_only_so_many_views_are_kept_and_the_oldest_is_dropped() -> None:
    views = WorkerViews(max_views=2)
    first, *others = (a_worker(id=WorkerId(f"w{number}")) for number in range(3))
    before = [views.of(worker) for worker in (first, *others)]
    assert [views.of(worker) is kept for worker, kept in zip(others, before[1:], strict=True)] == [True, True]
    assert views.of(first) is not before[0]
