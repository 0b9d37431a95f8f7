"""What people do in a scenario. They repeat a request until it is answered."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from lcm.domain.errors import Unreachable
from lcm.domain.lifecycle import FAILED, PENDING, RUNNING, STOPPED, TERMINATED, DesiredStatus, WorkerStatus
from lcm.domain.worker import Worker
from simulation.world.calls import Violation
from simulation.world.ports import SimulatedTransport
from simulation.world.processes import KEYS
from simulation.world.world import World
from support.memory_licensing import TOKEN

PATIENCE_SECONDS = 3 * 3600.0
ADMIN = {"Authorization": f"Bearer {KEYS.admin}"}


class RunEnded(Exception):
    """A violation ended the run; the story need not continue."""


class TooLate(Exception):
    """Something did not happen in time."""


class Story:
    """A person with the admin's token."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._transport = SimulatedTransport(world.user)
        self.expectations: list[Callable[[], str | None]] = []
        """Besides the desired statuses; each returns what is missing, or None."""

    async def create(self, name: str, template: str = "small") -> str:
        """Create a worker and return its id."""
        body = {"name": name, "template_name": template}
        status, answer = await self._ask("POST", "/api/workers", body, key=f"create {name}")
        if status != 202:
            self.world.fail(Violation("I13Idempotent", f"a creation was answered with {status}: {answer}"))
            raise RunEnded
        self._acknowledge(answer)
        return str(answer["id"])

    async def act(self, worker_id: str, action: str) -> None:
        method, path = ("DELETE", "") if action == "delete" else ("POST", f"/{action}")
        status, answer = await self._ask(method, f"/api/workers/{worker_id}{path}", None)
        assert status in (202, 409), answer
        if status == 202:
            self._acknowledge(answer)

    async def adopt(self, worker_id: str) -> None:
        """Adopt a worker with the certificate that its page shows, once the page shows the present one."""
        while (worker := self.world.disk.peek(worker_id)) is not None and not worker.is_trusted:
            assert worker.instance.id is not None
            self.world.adopted.add(worker.instance.id)
            body = {"certificate_sha256": worker.cml.certificate_sha256}
            status, answer = await self._ask("POST", f"/api/workers/{worker_id}/adopt", body)
            assert status in (202, 409), answer
            if status == 202:
                self._acknowledge(answer)
                return
            await self.pause(1.0)

    async def license(self, worker_id: str, token: str = TOKEN, **terms: str | int) -> None:
        """Request a license; a terminated worker gets none."""
        await self._request_license("POST", worker_id, {"token": token, **terms})

    async def deregister_license(self, worker_id: str) -> None:
        await self._request_license("DELETE", worker_id, None)

    async def _request_license(self, method: str, worker_id: str, body: Any) -> None:
        status, answer = await self._ask(method, f"/api/workers/{worker_id}/license", body)
        assert status in (202, 409), answer
        if status == 202:
            self._acknowledge(answer)

    async def accept_certificate(self, worker_id: str, sha256: str) -> int:
        """Accept the certificate that CML presents instead of the pinned one; return the answer's status."""
        path, body = f"/api/workers/{worker_id}/cml-certificate", {"sha256": sha256}
        self.world.accepted_certificates.add(sha256)
        status, answer = await self._ask("PUT", path, body)
        if status == 202:
            self._acknowledge(answer)
        return status

    async def log_in_as(self, worker_id: str, username: str, password: str) -> None:
        """Set the login of one worker."""
        await self._change_login("PUT", worker_id, {"username": username, "password": password})

    async def log_in_as_everywhere(self, worker_id: str) -> None:
        """Remove it: LCM uses the fleet's login again."""
        await self._change_login("DELETE", worker_id, None)

    async def _change_login(self, method: str, worker_id: str, body: Any) -> None:
        path = f"/api/workers/{worker_id}/cml-login"
        status, answer = await self._ask(method, path, body, key=f"{method} {body}")
        assert status == 202, answer
        self._acknowledge(answer)

    async def read_all(self) -> None:
        """Page through the list: a worker that exists all the time must appear exactly once."""
        before = self._live_ids()
        seen: list[str] = []
        query = f"?limit={self.world.knobs.page_size}"
        while query:
            status, page = await self._ask("GET", f"/api/workers{query}", None)
            assert status == 200, page
            seen += [worker["id"] for worker in page["items"]]
            after = page["next"]
            query = f"?limit={self.world.knobs.page_size}&after={quote(after)}" if after else ""
        missed = (before & self._live_ids()) - set(seen)
        if missed or len(set(seen)) != len(seen):
            self.world.fail(Violation("I14Monotonic", f"pages show {seen}, and miss {sorted(missed)}"))

    async def until(self, worker_id: str, status: WorkerStatus) -> Worker:
        """Wait for a status, and send a retry where a person would."""
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while self.world.clock.monotonic() < ends:
            self._stop_if_over()
            worker = self.world.disk.peek(worker_id)
            if worker is not None and worker.status is status:
                return worker
            if worker is not None and worker.status is FAILED and status is not FAILED:
                await self.act(worker_id, "retry")
            await self.world.clock.sleep(1.0)
        raise TooLate(f"{worker_id} is not {status}")

    async def pause(self, seconds: float) -> None:
        """Let time pass, unless a violation ends the run."""
        await self.world.over_within(seconds)
        self._stop_if_over()

    def _live_ids(self) -> set[str]:
        return {worker.id for worker in self.world.disk.peek_all() if worker.status is not TERMINATED}

    def unsettled(self) -> list[str]:
        """Workers without their desired status, and unmet expectations."""
        awaited = [missing for expectation in self.expectations if (missing := expectation()) is not None]
        return awaited + [
            f"{worker.name} is {worker.status}, wanted {worker.desired_status}: {worker.status_reason}"
            for worker in self.world.disk.peek_all()
            if not _is_settled(worker)
        ]

    async def settle(self, within_seconds: float) -> None:
        """Wait until nothing is unsettled; where LCM gave up, people retry."""
        ends = self.world.clock.monotonic() + within_seconds
        while self.unsettled():
            self._stop_if_over()
            if self.world.clock.monotonic() > ends:
                raise TooLate("; ".join(self.unsettled()))
            for worker in self.world.disk.peek_all():
                if worker.status is FAILED:
                    is_wanted = worker.desired_status is not DesiredStatus.TERMINATED
                    await self.act(worker.id, "retry" if is_wanted else "delete")
            await self.world.clock.sleep(5.0)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any,
        key: str | None = None,
        credentials: Mapping[str, str] = ADMIN,
    ) -> tuple[int, Any]:
        headers = {**credentials, "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        data = json.dumps(body).encode() if body is not None else None
        while True:
            self._stop_if_over()
            try:
                status, answer = await self._transport.send(method, path, headers, data)
            except Unreachable:
                await self.world.clock.sleep(2.0)
                continue
            if status < 500 and not (status == 422 and b"unknown-reference" in answer):
                return status, json.loads(answer) if answer else None
            await self.world.clock.sleep(2.0)

    def _acknowledge(self, answer: dict[str, Any]) -> None:
        known = self.world.acknowledged.get(answer["id"], 0)
        self.world.acknowledged[answer["id"]] = max(known, answer["generation"])

    def _stop_if_over(self) -> None:
        if self.world.is_over:
            raise RunEnded


def _is_settled(worker: Worker) -> bool:
    match worker.desired_status:
        case DesiredStatus.RUNNING:
            is_licensing = worker.license.pending_operation is not None
            return worker.status is RUNNING and worker.cml.is_ready and not is_licensing
        case DesiredStatus.STOPPED:
            return worker.status is STOPPED or (worker.status is PENDING and not worker.may_have_instance)
        case DesiredStatus.TERMINATED:
            return worker.status is TERMINATED
