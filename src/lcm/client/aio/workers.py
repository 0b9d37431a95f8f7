"""Workers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from lcm.client.aio.link import AsyncEvents, AsyncLink
from lcm.client.aio.waiting import AsyncWait, OnProgress
from lcm.client.calls import PAGE, Call, route
from lcm.client.errors import NotFound
from lcm.client.goals import WorkerGoal, standing_of_worker
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.load_history import HistoryRange
from lcm.rest.schemas import (
    CmlAccess,
    Explanation,
    LabList,
    LoadHistory,
    Resources,
    Timeline,
    WorkerPage,
    WorkerView,
)

MAX_NAMED: Final = 50
"""More workers than these are not named in the address of a stream."""
_WORKER_EVENTS: Final = tuple(
    f"worker.{kind}"
    for kind in (
        *("snapshot", "created", "imported", "adopted", "status", "endpoint", "drain"),
        *("terminated", "paused", "resumed", "license"),
    )
)


class AsyncWorkers:
    """Workers. One is named by its id or, while it lives, by its name."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(
        self,
        *,
        statuses: Sequence[WorkerStatus] = (),
        aws_region: str | None = None,
        include_terminated: bool = False,
    ) -> list[WorkerView]:
        """Return all workers by name; terminated ones only on request."""
        found: list[WorkerView] = []
        after: str | None = None
        while True:
            query = {
                "status": tuple(statuses),
                "aws_region": aws_region,
                "include_terminated": include_terminated or None,
                "limit": PAGE,
                "after": after,
            }
            page = await self._link.send(Call(path="/api/workers", query=query, answer=WorkerPage))
            found += page.items
            after = page.next
            if after is None:
                return found

    async def get(self, worker: str) -> WorkerView:
        return await self._link.send(Call(path=route("/api/workers/{}", worker), answer=WorkerView))

    async def create(
        self,
        name: str,
        template: str,
        *,
        aws_region: str | None = None,
        tags: Mapping[str, str] | None = None,
        licensed: bool = False,
    ) -> WorkerView:
        """Record a worker; its instance is launched afterwards."""
        body = {"name": name, "template_name": template, "tags": dict(tags or {}), "licensed": licensed}
        if aws_region is not None:
            body["aws_region"] = aws_region
        call = Call(method="POST", path="/api/workers", body=body, is_keyed=True, answer=WorkerView)
        return await self._link.send(call)

    async def start(self, worker: str) -> WorkerView:
        return await self._act("POST", worker, "start")

    async def stop(self, worker: str) -> WorkerView:
        """The disk is kept; the worker can be started again."""
        return await self._act("POST", worker, "stop")

    async def drain(self, worker: str) -> WorkerView:
        """No new sessions; the worker stops when its sessions are over."""
        return await self._act("POST", worker, "drain")

    async def cancel_drain(self, worker: str) -> WorkerView:
        return await self._act("POST", worker, "cancel-drain")

    async def retry(self, worker: str) -> WorkerView:
        return await self._act("POST", worker, "retry")

    async def refresh(self, worker: str) -> WorkerView:
        return await self._act("POST", worker, "refresh")

    async def hold(self, worker: str, until: datetime, reason: str = "") -> WorkerView:
        """Keep it running until then, idle or not."""
        return await self._act("PUT", worker, "hold", {"until": until, "reason": reason})

    async def release(self, worker: str) -> WorkerView:
        return await self._act("DELETE", worker, "hold")

    async def tag(self, worker: str, tags: Mapping[str, str]) -> WorkerView:
        """Replace all tags that LCM set."""
        return await self._act("PUT", worker, "tags", {"tags": dict(tags)})

    async def adopt(self, worker: str, certificate_sha256: str | None) -> WorkerView:
        """Let its CML have LCM's login, if it presents this certificate; LCM did not launch the instance."""
        return await self._act("POST", worker, "adopt", {"certificate_sha256": certificate_sha256})

    async def license(self, worker: str, token: str | None = None) -> WorkerView:
        """Register its CML with this token, or with the fleet's."""
        return await self._act("POST", worker, "license", {"token": token} if token is not None else {})

    async def release_license(self, worker: str) -> WorkerView:
        return await self._act("DELETE", worker, "license")

    async def delete(self, worker: str, *, purge: bool = False) -> WorkerView:
        """Terminate the instance and its disk; the record is kept for the audit, or purged too."""
        path = route("/api/workers/{}", worker)
        query = {"force": purge or None}
        return await self._link.send(
            Call(method="DELETE", path=path, query=query, is_keyed=True, answer=WorkerView)
        )

    async def explain(self, worker: str) -> Explanation:
        """Return why it has its status and what happens next."""
        return await self._link.send(Call(path=route("/api/workers/{}/explain", worker), answer=Explanation))

    async def timeline(self, worker: str) -> Timeline:
        return await self._link.send(Call(path=route("/api/workers/{}/timeline", worker), answer=Timeline))

    async def resources(self, worker: str) -> Resources:
        return await self._link.send(Call(path=route("/api/workers/{}/resources", worker), answer=Resources))

    async def load_history(self, worker: str, span: HistoryRange = HistoryRange.HOUR) -> LoadHistory:
        """Return its load over an hour, a day or a week."""
        path = route("/api/workers/{}/history", worker)
        return await self._link.send(Call(path=path, query={"range": span}, answer=LoadHistory))

    async def cml_access(self, worker: str) -> CmlAccess:
        """Return how its CML is reached. LCM shows its password to no client."""
        return await self._link.send(Call(path=route("/api/workers/{}/cml", worker), answer=CmlAccess))

    async def labs(self, worker: str) -> LabList:
        return await self._link.send(Call(path=route("/api/workers/{}/labs", worker), answer=LabList))

    async def wait(
        self,
        worker: str,
        goal: str,
        *,
        timeout_seconds: float = 900.0,
        on_progress: OnProgress = lambda _id, _standing: None,
    ) -> WorkerView | None:
        """Return the worker when it has reached a `WorkerGoal`, None if it is gone.

        Raises WaitFailed or WaitTimedOut.
        """
        try:
            first = await self.get(worker)
        except NotFound:
            if goal == WorkerGoal.DELETED:
                return None
            raise
        found = await self.wait_for_all(
            [first.id], goal, timeout_seconds=timeout_seconds, on_progress=on_progress
        )
        return found[first.id]

    async def wait_for_all(
        self,
        worker_ids: Sequence[str],
        goal: str,
        *,
        timeout_seconds: float = 900.0,
        on_progress: OnProgress = lambda _id, _standing: None,
    ) -> Mapping[str, WorkerView | None]:
        """Return the workers when all of them have reached a goal. Raises WaitFailed or WaitTimedOut."""
        wanted = WorkerGoal(goal)
        wait = AsyncWait[WorkerView](
            worker_ids,
            lambda found: standing_of_worker(wanted, found),
            self._find,
            lambda event: event.worker,
            on_progress,
        )
        named = worker_ids if len(worker_ids) <= MAX_NAMED else ()
        events = AsyncEvents(self._link, worker_ids=named, types=_WORKER_EVENTS)
        return await wait.run(self._link.clock, events, timeout_seconds)

    async def _find(self, worker_id: str) -> WorkerView | None:
        try:
            return await self.get(worker_id)
        except NotFound:
            return None

    async def _act(self, method: str, worker: str, action: str, body: Any = None) -> WorkerView:
        path = route("/api/workers/{}/", worker) + action
        return await self._link.send(
            Call(method=method, path=path, body=body, is_keyed=True, answer=WorkerView)
        )
