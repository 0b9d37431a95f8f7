# Generated from `aio` by `make docs`; change that instead.
"""Workers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from lcm.client.calls import PAGE, Call, route
from lcm.client.errors import NotFound
from lcm.client.goals import WorkerGoal, standing_of_worker
from lcm.client.sync.link import Events, Link
from lcm.client.sync.waiting import OnProgress, Wait
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


class Workers:
    """Workers. One is named by its id or, while it lives, by its name."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def list_all(
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
            page = self._link.send(Call(path="/api/workers", query=query, answer=WorkerPage))
            found += page.items
            after = page.next
            if after is None:
                return found

    def get(self, worker: str) -> WorkerView:
        return self._link.send(Call(path=route("/api/workers/{}", worker), answer=WorkerView))

    def create(
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
        return self._link.send(call)

    def start(self, worker: str) -> WorkerView:
        return self._act("POST", worker, "start")

    def stop(self, worker: str) -> WorkerView:
        """The disk is kept; the worker can be started again."""
        return self._act("POST", worker, "stop")

    def drain(self, worker: str) -> WorkerView:
        """No new sessions; the worker stops when its sessions are over."""
        return self._act("POST", worker, "drain")

    def cancel_drain(self, worker: str) -> WorkerView:
        return self._act("POST", worker, "cancel-drain")

    def retry(self, worker: str) -> WorkerView:
        return self._act("POST", worker, "retry")

    def refresh(self, worker: str) -> WorkerView:
        return self._act("POST", worker, "refresh")

    def hold(self, worker: str, until: datetime, reason: str = "") -> WorkerView:
        """Keep it running until then, idle or not."""
        return self._act("PUT", worker, "hold", {"until": until, "reason": reason})

    def release(self, worker: str) -> WorkerView:
        return self._act("DELETE", worker, "hold")

    def tag(self, worker: str, tags: Mapping[str, str]) -> WorkerView:
        """Replace all tags that LCM set."""
        return self._act("PUT", worker, "tags", {"tags": dict(tags)})

    def adopt(self, worker: str, certificate_sha256: str | None) -> WorkerView:
        """Let its CML have LCM's login, if it presents this certificate; LCM did not launch the instance."""
        return self._act("POST", worker, "adopt", {"certificate_sha256": certificate_sha256})

    def license(self, worker: str, token: str | None = None) -> WorkerView:
        """Register its CML with this token, or with the fleet's."""
        return self._act("POST", worker, "license", {"token": token} if token is not None else {})

    def release_license(self, worker: str) -> WorkerView:
        return self._act("DELETE", worker, "license")

    def delete(self, worker: str, *, purge: bool = False) -> WorkerView:
        """Terminate the instance and its disk; the record is kept for the audit, or purged too."""
        path = route("/api/workers/{}", worker)
        query = {"force": purge or None}
        return self._link.send(
            Call(method="DELETE", path=path, query=query, is_keyed=True, answer=WorkerView)
        )

    def explain(self, worker: str) -> Explanation:
        """Return why it has its status and what happens next."""
        return self._link.send(Call(path=route("/api/workers/{}/explain", worker), answer=Explanation))

    def timeline(self, worker: str) -> Timeline:
        return self._link.send(Call(path=route("/api/workers/{}/timeline", worker), answer=Timeline))

    def resources(self, worker: str) -> Resources:
        return self._link.send(Call(path=route("/api/workers/{}/resources", worker), answer=Resources))

    def load_history(self, worker: str, span: HistoryRange = HistoryRange.HOUR) -> LoadHistory:
        """Return its load over an hour, a day or a week."""
        path = route("/api/workers/{}/history", worker)
        return self._link.send(Call(path=path, query={"range": span}, answer=LoadHistory))

    def cml_access(self, worker: str) -> CmlAccess:
        """Return how its CML is reached. LCM shows its password to no client."""
        return self._link.send(Call(path=route("/api/workers/{}/cml", worker), answer=CmlAccess))

    def labs(self, worker: str) -> LabList:
        return self._link.send(Call(path=route("/api/workers/{}/labs", worker), answer=LabList))

    def wait(
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
            first = self.get(worker)
        except NotFound:
            if goal == WorkerGoal.DELETED:
                return None
            raise
        found = self.wait_for_all([first.id], goal, timeout_seconds=timeout_seconds, on_progress=on_progress)
        return found[first.id]

    def wait_for_all(
        self,
        worker_ids: Sequence[str],
        goal: str,
        *,
        timeout_seconds: float = 900.0,
        on_progress: OnProgress = lambda _id, _standing: None,
    ) -> Mapping[str, WorkerView | None]:
        """Return the workers when all of them have reached a goal. Raises WaitFailed or WaitTimedOut."""
        wanted = WorkerGoal(goal)
        wait = Wait[WorkerView](
            worker_ids,
            lambda found: standing_of_worker(wanted, found),
            self._find,
            lambda event: event.worker,
            on_progress,
        )
        named = worker_ids if len(worker_ids) <= MAX_NAMED else ()
        events = Events(self._link, worker_ids=named, types=_WORKER_EVENTS)
        return wait.run(self._link.clock, events, timeout_seconds)

    def _find(self, worker_id: str) -> WorkerView | None:
        try:
            return self.get(worker_id)
        except NotFound:
            return None

    def _act(self, method: str, worker: str, action: str, body: Any = None) -> WorkerView:
        path = route("/api/workers/{}/", worker) + action
        return self._link.send(Call(method=method, path=path, body=body, is_keyed=True, answer=WorkerView))
