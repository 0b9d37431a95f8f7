"""People who use workers, hold them, and repeat requests."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from lcm.control_plane.store.port import Document, Fence
from lcm.core.timeouts import timeout
from lcm.domain.lifecycle import RUNNING, STOPPED, TERMINATED, DesiredStatus
from lcm.domain.pause import PauseReason
from lcm.domain.worker import Worker
from simulation.story import PATIENCE_SECONDS, RunEnded, Story, TooLate
from simulation.world.calls import Violation
from simulation.world.live_fleet import LiveFleet
from simulation.world.processes import KEYS
from simulation.world.world import World

DAY = timedelta(days=1)
OPERATOR = {"Authorization": f"Bearer {KEYS.operator}"}
CONTROLLER = {"X-API-Key": KEYS.controller}


class Sent(NamedTuple):
    """A request with an idempotency key, and its answer."""

    method: str
    path: str
    body: Any
    key: str
    status: int


class Classroom(Story):
    """Teachers and students. Their requests carry idempotency keys, so a repeated one has no effect."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sent: list[Sent] = []

    def use(self, worker_id: str) -> bool:
        """Do a user action in a lab, if CML is up."""
        return self._cml.use(worker_id, "start_node") is not None

    def build_for(self, worker_id: str, seconds: float) -> None:
        """Start a long build in a lab and leave, if CML is up."""
        server = self._cml.use(worker_id, "start_node")
        if server is not None:
            server.put_to_work(seconds)

    @property
    def _cml(self) -> LiveFleet:
        assert self.world.live is not None
        return self.world.live

    def is_running(self, worker_id: str) -> bool:
        """Whether its record says RUNNING."""
        worker = self.world.disk.peek(worker_id)
        return worker is not None and worker.status is RUNNING

    def expect_running(self, worker_id: str) -> None:
        """Nothing may have stopped it: its record says RUNNING."""
        if not self.is_running(worker_id):
            self.world.fail(Violation("I6Pause", f"{worker_id} does not run any more"))
            raise RunEnded

    async def ask_for(self, worker_id: str, action: str) -> None:
        await self._keyed("POST", f"/api/workers/{worker_id}/{action}", None)

    async def hold(self, worker_id: str, seconds: float) -> None:
        until = self.world.clock.now() + timedelta(seconds=seconds)
        await self._keyed("PUT", f"/api/workers/{worker_id}/hold", {"until": until.isoformat()})

    async def release(self, worker_id: str) -> None:
        await self._keyed("DELETE", f"/api/workers/{worker_id}/hold", None)

    async def ask_again(self, rng: Random) -> None:
        """Repeat a request, as after a lost answer; sometimes reuse its key for another request."""
        if not self.sent:
            return
        again = rng.choice(self.sent[-8:])
        if rng.random() < 0.3:
            body = {"until": (self.world.clock.now() + DAY).isoformat()}
            path = f"/api/workers/{again.path.split('/')[3]}/hold"
            status, answer = await self._ask("PUT", path, body, again.key, OPERATOR)
            if again.status == 202 and status != 422:
                self._fail(f"another request under the key of {again} was answered with {status}: {answer}")
            return
        status, answer = await self._ask(again.method, again.path, again.body, again.key, OPERATOR)
        if again.status == 202 and status != 202:
            self._fail(f"{again} was answered with {status} when it was sent again: {answer}")

    async def place(self, worker_id: str, session_id: str) -> bool:
        """Place a lablet session on the worker, if it accepts one."""
        path = f"/api/internal/workers/{worker_id}/sessions"
        status, _ = await self._ask_as_controller("POST", path, {"session_id": session_id})
        return status == 200

    async def end_session(self, worker_id: str, session_id: str) -> None:
        path = f"/api/internal/workers/{worker_id}/sessions/{session_id}"
        await self._ask_as_controller("DELETE", path, None)

    async def until_a_pause_is_decided(self, within_seconds: float) -> str | None:
        """The first worker that awaits its second idle check."""
        return await self._until_some(lambda worker: worker.pause.decided_at is not None, within_seconds)

    async def until_a_pause_is_wanted(self, within_seconds: float) -> str | None:
        """The first worker that LCM is about to stop because it is idle, at that very moment."""
        return await self._until_some(is_being_paused, within_seconds)

    async def until_so_many_are_stopped(self, count: int) -> None:
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while self.world.clock.monotonic() < ends:
            if sum(worker.status is STOPPED for worker in self.world.disk.peek_all()) >= count:
                return
            await self.pause(10.0)
        raise TooLate(f"not {count} workers are stopped")

    async def _until_some(self, test: Callable[[Worker], bool], within_seconds: float) -> str | None:
        ends = self.world.clock.monotonic() + within_seconds
        while not self.world.is_over:
            found = next(filter(test, self.world.disk.peek_all()), None)
            if found is not None:
                return found.id
            if not await self._next_commit(ends - self.world.clock.monotonic()):
                return None
        raise RunEnded

    async def _next_commit(self, within_seconds: float) -> bool:
        """Whether something was written in this time."""
        written = asyncio.Event()

        def on_commit(before: Document | None, after: Document, fence: Fence | None) -> None:
            written.set()

        self.world.disk.on_commit.append(on_commit)
        try:
            async with timeout(within_seconds):
                await written.wait()
        except TimeoutError:
            return False
        finally:
            self.world.disk.on_commit.remove(on_commit)
        return True

    async def keep_everything(self) -> None:
        """Hold every worker, so that the run can settle."""
        for worker in self.world.disk.peek_all():
            if worker.status is not TERMINATED:
                await self.hold(worker.id, DAY.total_seconds())

    async def _keyed(self, method: str, path: str, body: Any) -> None:
        key = f"request {len(self.sent)}"
        status, answer = await self._ask(method, path, body, key, OPERATOR)
        is_over = status == 422 and answer["type"].endswith("moment-passed")
        assert status in (202, 404, 409) or is_over, answer
        self.sent.append(Sent(method, path, body, key, status))

    async def _ask_as_controller(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        return await self._ask(method, path, body, credentials=CONTROLLER)

    def _fail(self, detail: str) -> None:
        self.world.fail(Violation("I13OneEffectPerKey", detail))


def is_being_paused(worker: Worker) -> bool:
    """Whether LCM has requested its stop because it is idle, and has not acted yet."""
    return (
        worker.is_live
        and worker.desired_status is DesiredStatus.STOPPED
        and worker.pause.reason is PauseReason.IDLE_TIMEOUT
    )
