"""A request with a key has one effect, however often it is sent; one with a version acts on that version."""

import pytest

from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.commands.request_action import request_action
from lcm.control_plane.records.preconditions import Preconditions, etag, keyed_request
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.domain.errors import KeyReused, PreconditionFailed
from lcm.domain.idempotency import REMEMBERED_REQUESTS, KeyedRequest
from lcm.domain.lifecycle import FAILED, DesiredStatus
from lcm.domain.transitions import move
from lcm.domain.worker import Action, Worker
from support.fleet import Fleet


class ForgetfulStore(MemoryStore):
    """Writes, and then does not say so: as a crash between commit and answer appears to the sender."""

    def __init__(self) -> None:
        super().__init__()
        self.loses_next_answer = False

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await super().insert(document, fence)
        self._answer()

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await super().replace(document, fence)
        self._answer()

    def _answer(self) -> None:
        if self.loses_next_answer:
            self.loses_next_answer = False
            raise StoreUnavailable("the write was not confirmed in time; it may still happen")


@pytest.fixture
async def fleet() -> Fleet:
    fleet = Fleet(store=ForgetfulStore())
    await fleet.seed()
    return fleet


def keyed(key: str, content: str = "start") -> KeyedRequest:
    return keyed_request("ada", key, content.encode())


async def create(fleet: Fleet, key: str, content: str = "create") -> Worker:
    return await create_worker(
        fleet.plane.records,
        fleet.plane.policies,
        name="one",
        template_name="small",
        aws_region=None,
        tags={},
        by="ada",
        request=keyed(key, content),
    )


async def act(fleet: Fleet, worker: Worker, action: Action, preconditions: Preconditions) -> Worker:
    return await request_action(fleet.plane.records, worker.id, action, by="ada", preconditions=preconditions)


async def test_a_request_sent_again_has_one_effect_even_when_others_acted_in_between(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    stop = Preconditions(keyed("k1", "stop"))
    await act(fleet, worker, Action.STOP, stop)
    started = await act(fleet, worker, Action.START, Preconditions(keyed("k2", "start")))
    again = await act(fleet, worker, Action.STOP, stop)
    assert again == started
    assert again.desired_status is DesiredStatus.RUNNING


async def test_a_request_that_changed_nothing_is_remembered_too(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    start = Preconditions(keyed("k1", "start"))
    await act(fleet, worker, Action.START, start)
    stopped = await act(fleet, worker, Action.STOP, Preconditions())
    assert await act(fleet, worker, Action.START, start) == stopped


async def test_a_request_whose_answer_was_lost_is_recognised(fleet: Fleet) -> None:
    store = fleet.store
    assert isinstance(store, ForgetfulStore)
    store.loses_next_answer = True
    with pytest.raises(StoreUnavailable):
        await create(fleet, "create")
    worker = await create(fleet, "create")
    store.loses_next_answer = True
    stop = Preconditions(keyed("k1", "stop"), frozenset({etag(worker.version)}))
    with pytest.raises(StoreUnavailable):
        await act(fleet, worker, Action.STOP, stop)
    stopped = await act(fleet, worker, Action.STOP, stop)
    assert stopped.generation == worker.generation + 1
    assert len(await fleet.workers.list_all()) == 1


async def test_a_request_sent_again_is_recognised_when_it_would_now_be_refused(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    start = Preconditions(keyed("k1"))
    await act(fleet, worker, Action.START, start)
    now = fleet.clock.now()
    failed = await fleet.workers.change(
        worker.id, lambda w: move(w, FAILED, by="test", reason="test", now=now)
    )
    assert await act(fleet, worker, Action.START, start) == failed
    await fleet.templates.switch("small", enabled=False)
    assert await create(fleet, "create") == failed


async def test_a_key_that_was_used_for_something_else_is_refused(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    await act(fleet, worker, Action.STOP, Preconditions(keyed("k1", "stop")))
    with pytest.raises(KeyReused):
        await act(fleet, worker, Action.START, Preconditions(keyed("k1", "start")))
    with pytest.raises(KeyReused):
        await create(fleet, "create", "another body")


async def test_the_same_key_of_two_people_is_two_keys() -> None:
    assert keyed_request("a", "k", b"x").key != keyed_request("b", "k", b"x").key
    assert keyed_request("a", "bk", b"x").key != keyed_request("ab", "k", b"x").key


async def test_only_so_many_requests_are_remembered(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    for number in range(REMEMBERED_REQUESTS * 2):
        worker = await act(fleet, worker, Action.START, Preconditions(keyed(f"k{number}")))
    assert len(worker.recent_requests) == REMEMBERED_REQUESTS


async def test_a_request_for_a_version_acts_on_that_version_or_not_at_all(fleet: Fleet) -> None:
    worker = await create(fleet, "create")
    seen = Preconditions(if_match=frozenset({'"77"', etag(worker.version)}))
    stopped = await act(fleet, worker, Action.STOP, seen)
    with pytest.raises(PreconditionFailed):
        await act(fleet, worker, Action.START, seen)
    assert await fleet.workers.get(worker.id) == stopped


async def test_a_template_switched_under_a_key_is_switched_once(fleet: Fleet) -> None:
    off = Preconditions(keyed("k1", "disable"))
    await fleet.templates.switch("small", enabled=False, preconditions=off)
    await fleet.templates.switch("small", enabled=True)
    assert (await fleet.templates.switch("small", enabled=False, preconditions=off)).enabled
