"""One decision cycle: read a snapshot, plan with the placement engine, carry out the plan.

The engine decides on the snapshot only; the control plane judges every claim again on the worker's record. A
refused claim costs another cycle on a fresh snapshot, so two schedulers can never place one session twice.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog

from lcm.core.clock import Clock
from lcm.domain.errors import Conflict, Fenced, IllegalTransition, NotFound, RequestError
from lcm.domain.lablet.decision import Decision, Launch, Outcome, Plan, WorkerStep
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession, WaitCode
from lcm.domain.lablet.snapshot import Snapshot, Stage
from lcm.domain.lablet.wording import without_ahead
from lcm.resource_scheduler.ports import ControlPlane
from lcm.resource_scheduler.recorder import DecisionRecorder
from lcm.resource_scheduler.stats import Stats
from lcm.rest.lablets import MAX_ORDERS, PlacementOrder, PlacementOutcome, PlacementResult, Waiting
from lcm.rest.schemas import ScaleUpRequest

log = structlog.get_logger(__name__)

MAX_ROUNDS: Final = 3
"""How often a cycle plans again for the sessions that a worker refused."""


class SchedulingCycle:
    """Carries out plans. One cycle at a time: the next one sees everything that this one did."""

    def __init__(self, control_plane: ControlPlane, clock: Clock, stats: Stats) -> None:
        self._control_plane = control_plane
        self._clock = clock
        self._stats = stats
        self._recorder = DecisionRecorder(control_plane)

    def reset(self) -> None:
        """Forget what only a leader knows."""
        self._stats.pending_instances = 0
        self._recorder.reset()

    async def run(self) -> datetime | None:
        """Place what can be placed; return when time alone makes another cycle worth it."""
        for _ in range(MAX_ROUNDS):
            snapshot = await self._control_plane.get_snapshot()
            self._stats.snapshots += 1
            now, began = self._clock.now(), self._clock.monotonic()
            plan = self._decide(snapshot, now)
            took = (self._clock.monotonic() - began) * 1_000
            refused = await self._assign(snapshot, plan)
            self._recorder.note(snapshot, plan, at=now, milliseconds=took, refused=frozenset(refused))
            if not refused:
                break
            self._stats.retries += len(refused)
        # Reasons first: they hold also if no worker can be requested, and a nomination protects its worker.
        await self._settle_waiting(snapshot, plan)
        await self._grow(snapshot, plan)
        await self._recorder.report()
        self._stats.last_cycle_at = self._clock.now()
        return _next_cycle_at(snapshot, self._clock.now())

    def _decide(self, snapshot: Snapshot, now: datetime) -> Plan:
        began = self._clock.monotonic()
        plan = PlacementEngine.plan(snapshot, now)
        self._stats.on_decided(self._clock.monotonic() - began)
        self._stats.pending_instances = len(snapshot.sessions)
        for decision in plan.decisions.values():
            self._stats.decisions[decision.outcome] += 1
        return plan

    async def _assign(self, snapshot: Snapshot, plan: Plan) -> list[str]:
        """Claim workers for the sessions that have one; return those that were refused."""
        sessions = {session.id: session for session in snapshot.sessions}
        orders = [
            PlacementOrder(
                session_id=decision.session_id,
                worker_id=decision.worker_id,
                attempt=sessions[decision.session_id].attempt + 1,
            )
            for decision in plan.decisions.values()
            if decision.outcome is Outcome.ASSIGN and decision.worker_id is not None
        ]
        refused = []
        for start in range(0, len(orders), MAX_ORDERS):
            for result in await self._control_plane.schedule(orders[start : start + MAX_ORDERS]):
                if result.outcome is PlacementOutcome.SCHEDULED:
                    self._on_placed(sessions[result.session_id], result)
                else:
                    refused.append(result.session_id)
                    self._stats.failed_placements[result.label or str(result.outcome)] += 1
                    self._stats.max_retries += result.has_used_retries
                    log.info("placement refused", session_id=result.session_id, reason=result.detail)
        return refused

    def _on_placed(self, session: LabletSession, result: PlacementResult) -> None:
        self._stats.on_placed(session, self._clock.now())
        log.info("session placed", session_id=session.id, worker_id=result.worker_id)

    async def _grow(self, snapshot: Snapshot, plan: Plan) -> None:
        """Bring workers back, and request the ones that are missing, each group at once."""
        for step in plan.steps:
            await self._bring_back(step)
        for launch in plan.launches:
            await self._launch(snapshot, launch)

    async def _bring_back(self, step: WorkerStep) -> None:
        try:
            if step.stage is Stage.DRAINING:
                await self._control_plane.cancel_drain(step.worker_id)
            else:
                await self._control_plane.start_worker(step.worker_id)
        except (Conflict, IllegalTransition, NotFound) as error:
            log.info("worker not brought back", worker_id=step.worker_id, reason=str(error))

    async def _launch(self, snapshot: Snapshot, launch: Launch) -> None:
        seats = sorted(session for seat in launch.seats for session in seat)
        request = ScaleUpRequest(
            template=launch.template,
            reason=f"no room for {len(seats)} lablet sessions",
            aws_region=launch.region,
            licensed=True,  # CML starts no node without a license
            count=launch.count,
            key=_launch_key(snapshot, launch.region, seats),
        )
        try:
            added = await self._control_plane.scale_up(request)
        except Fenced:
            raise
        except RequestError as error:
            log.warning("scale-up refused", region=launch.region, reason=str(error))
            return
        self._stats.scale_up_requests[launch.template] += len(added)
        log.info("workers requested", template=launch.template, count=len(added), region=launch.region)

    async def _settle_waiting(self, snapshot: Snapshot, plan: Plan) -> None:
        """Fail what can never be placed, and report why the others wait, if that is new."""
        items = []
        for session in snapshot.sessions:
            decision = plan.decisions[session.id]
            if decision.outcome is Outcome.IMPOSSIBLE:
                await self._reject(decision)
            elif decision.outcome is not Outcome.ASSIGN and _is_changed(session, decision):
                items.append(
                    Waiting(
                        session_id=session.id,
                        code=decision.code or WaitCode.NO_ROOM,
                        text=decision.text,
                        nominated=decision.nomination,
                    )
                )
        for start in range(0, len(items), MAX_ORDERS):
            await self._control_plane.report_waiting(items[start : start + MAX_ORDERS])

    async def _reject(self, decision: Decision) -> None:
        try:
            await self._control_plane.reject(decision.session_id, decision.text)
            self._stats.pending_instances -= 1
        except (Conflict, IllegalTransition, NotFound) as error:
            log.info("session not rejected", session_id=decision.session_id, reason=str(error))


def _is_changed(session: LabletSession, decision: Decision) -> bool:
    """Whether the reason, or the worker that the session counts on, has changed.

    How many sessions are ahead does not count, and a time only if it is another minute.
    """
    before = session.waits_for
    if before is None or before.code is not decision.code:
        return True
    counted_on = session.nominated.worker_id if session.nominated is not None else None
    counts_on = decision.nomination.worker_id if decision.nomination is not None else None
    return counted_on != counts_on or without_ahead(before.text) != without_ahead(decision.text)


def _launch_key(snapshot: Snapshot, region: str, seats: Sequence[str]) -> str:
    """The same for a repeated request; another once the region has gained or lost a worker."""
    fleet = sorted(worker.id for worker in snapshot.workers if worker.region == region)
    digest = hashlib.sha256("\n".join((*seats, "", *fleet)).encode()).hexdigest()[:16]
    return f"su-{region}-{digest}-{len(seats)}"


def _next_cycle_at(snapshot: Snapshot, now: datetime) -> datetime | None:
    """When a backoff ends or the fleet may grow again."""
    moments = [session.next_try_at for session in snapshot.sessions if session.next_try_at is not None]
    moments += [each.retry_at for each in snapshot.growth.values() if each.retry_at is not None]
    return min((moment for moment in moments if moment > now), default=None)
