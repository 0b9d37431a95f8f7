"""The heart of the lablet controller: observe a session's lab, decide, do one thing, report it.

    record ──┐
             ├─> step of its status (pure) ─> decision ─> one effect ─> report ─> next decision
    CML ─────┘

The step for each status is in `steps/`; what a decision means is `_carry_out` below. Every effect on CML goes
through `gate.py`. A session runs through as many decisions as it can before it waits.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never

import structlog

from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.core.election import LeadershipLost
from lcm.core.loop import Reconciler
from lcm.core.results import ReconciliationResult, Requeue, Retry, Success
from lcm.core.timeouts import timeout
from lcm.domain.errors import (
    CertificateChanged,
    Conflict,
    CredentialsRefused,
    Fenced,
    IllegalTransition,
    LabRefused,
    NotFound,
    TransientError,
    Unreachable,
)
from lcm.domain.lablet.evidence import EvidenceUnusable, pack
from lcm.domain.lablet.instantiation import record_progress
from lcm.domain.lablet.lab import CleanupProof, LabCleanup, LabStep, StepReport, StepStatus
from lcm.domain.lablet.probe import TRY_SECONDS, judge, probed_ports
from lcm.domain.lablet.restart import restarts_of
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import (
    COLLECTING,
    GRADING,
    IN_USE,
    INSTANTIATING,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    SessionStatus,
)
from lcm.domain.observation import Observation, Unknown
from lcm.domain.worker import Worker
from lcm.lablet_controller.decisions import (
    LOOK_SECONDS,
    POLL_SECONDS,
    STUCK_SECONDS,
    Adopt,
    Clean,
    Collect,
    Decision,
    Delete,
    Import,
    IntendImport,
    LabChange,
    LabView,
    Move,
    Probe,
    Report,
    SetTags,
    Situation,
    Start,
    Stop,
    Unschedule,
    Wait,
    Wipe,
    fail,
    is_usable,
)
from lcm.lablet_controller.gate import LabGate
from lcm.lablet_controller.observer import LabObserver
from lcm.lablet_controller.ports import ControlPlane, PortProbe
from lcm.lablet_controller.stats import Stats
from lcm.lablet_controller.steps import collecting, instantiating, ready, running, scheduled, stopping
from lcm.rest.lablet_client import SessionChanged
from lcm.rest.lablet_reports import (
    EvidenceCollected,
    ImportIntent,
    LabCleaned,
    LabImported,
    SessionMove,
    SessionProgress,
)

log = structlog.get_logger(__name__)

STEPS: Final[Mapping[SessionStatus, Callable[[Situation], Decision]]] = {
    SCHEDULED: scheduled.decide,
    INSTANTIATING: instantiating.decide,
    READY: ready.decide,
    RUNNING: running.decide,
    COLLECTING: collecting.decide,
    GRADING: running.end,
    STOPPING: stopping.decide,
}
"""The statuses that are the lablet controller's."""

OBSERVED: Final = frozenset({INSTANTIATING, RUNNING, COLLECTING, STOPPING})
DECISIONS_PER_RECONCILE: Final = 30
"""A session that needs more at once lets others go first."""
CONFLICT_SECONDS: Final = 1.0
REFUSED_LOGIN_SECONDS: Final = 120.0
REFUSED_START_SECONDS: Final = 20.0
STUCK_AFTER: Final = 3
"""A removal that was refused this often may need a person."""


@dataclass
class LabletReconciler(Reconciler[LabletSession]):
    """Gives placed sessions their labs, and removes the labs of those that end."""

    resource_label = "session_id"
    fatal = (LeadershipLost, Fenced)
    passing = (TransientError,)

    control_plane: ControlPlane
    observer: LabObserver
    gate: LabGate
    server_of: Callable[[Worker], CmlServer | None]
    clock: Clock
    """The control plane's, which recorded the times of sessions."""
    stats: Stats
    lab_lead: timedelta
    start_timeout: timedelta
    restarts_stopped_labs: bool = False
    port_probe: PortProbe | None = None
    """None: ports are not tested."""

    def reset(self) -> None:
        """Drop what an earlier leadership learned."""
        self.observer.reset()
        self.stats.managed.clear()

    # What the loop asks for.

    async def list_resources(self) -> Sequence[LabletSession]:
        return await self.control_plane.list_sessions(*STEPS)

    async def fetch_single_resource(self, resource_id: str) -> LabletSession | None:
        try:
            session = await self.control_plane.get_session(resource_id)
        except NotFound:
            return None
        return session if session.status in STEPS else None

    def resource_id(self, resource: LabletSession) -> str:
        return resource.id

    def on_forgotten(self, resource_id: str) -> None:
        self.observer.forget(resource_id)
        self.stats.forget(resource_id)

    # One reconcile of one session.

    async def reconcile_resource(self, resource: LabletSession) -> ReconciliationResult:
        self.stats.on_session(resource)
        try:
            return await self._run(resource)
        except Fenced:
            raise
        except (Conflict, IllegalTransition) as changed:
            return Requeue(str(changed), CONFLICT_SECONDS)
        except (CredentialsRefused, CertificateChanged) as error:
            return Retry(str(error), REFUSED_LOGIN_SECONDS)
        except (TransientError, LabRefused, NotFound) as error:
            return Retry(str(error))

    async def _run(self, session: LabletSession) -> ReconciliationResult:
        worker = await self._worker_of(session)
        server = self.server_of(worker) if worker is not None and is_usable(worker) else None
        seen: Observation[LabView] | None = None
        for _ in range(DECISIONS_PER_RECONCILE):
            if session.status not in STEPS:
                self.stats.on_session(session)
                return Success()
            if seen is None:
                seen = await self._observe(session, server)
            situation = Situation(
                session,
                worker,
                seen,
                self.clock.now(),
                self.lab_lead,
                self.start_timeout,
                self.restarts_stopped_labs,
            )
            decision = STEPS[session.status](situation)
            if isinstance(decision, Wait):
                is_failure = isinstance(seen, Unknown) and seen.is_failure
                return Retry(decision.reason) if is_failure else Requeue(decision.reason, decision.seconds)
            outcome = await self._carry_out(session, server, decision)
            if not isinstance(outcome, LabletSession):
                return outcome
            session = outcome
            self.stats.on_session(session)
            seen = seen if isinstance(decision, Report) else None
        return Requeue("many steps in one reconcile", after_seconds=0)

    async def _worker_of(self, session: LabletSession) -> Worker | None:
        if session.worker_id is None:
            return None
        return await self.control_plane.fetch_single_resource(session.worker_id)

    async def _observe(self, session: LabletSession, server: CmlServer | None) -> Observation[LabView]:
        if server is None or session.lab is None or session.status not in OBSERVED:
            return Unknown("the lab is not observed")
        if server.instance_id != session.lab.instance_id:
            return Unknown("the worker runs on another instance")
        return await self.observer.observe(session, server)

    async def _carry_out(
        self, session: LabletSession, server: CmlServer | None, decision: Decision
    ) -> LabletSession | ReconciliationResult:
        """Do the one thing that was decided. A session that comes back is reconciled further at once."""
        match decision:
            case Move():
                return await self._move(session, decision)
            case Unschedule():
                return await self._unschedule(session, server, decision)
            case IntendImport(generation, is_previous_gone):
                return await self._intend(session, generation, is_previous_gone)
            case Adopt(lab_id):
                return await self._record(session, lab_id, is_adopted=True)
            case Clean(proof):
                return await self._clean(session, server, proof)
            case Report():
                return await self._report(session, decision)
            case Wait(reason, seconds):
                return Requeue(reason, seconds)
            case _ if server is None:
                return Requeue("the worker has no address", POLL_SECONDS)
            case Probe(attempt):
                return await self._probe(session, server, attempt)
            case _:
                return await self._change_lab(session, server, decision)

    async def _change_lab(
        self, session: LabletSession, server: CmlServer, change: LabChange
    ) -> LabletSession | ReconciliationResult:
        match change:
            case Import():
                return await self._import(session, server)
            case SetTags(nodes):
                return await self._set_tags(session, server, nodes)
            case Start():
                return await self._start(session, server)
            case Collect():
                return await self._collect(session, server, change)
            case Stop():
                return await self._stop(session, server, change)
            case Wipe():
                return await self._wipe(session, server)
            case Delete():
                return await self._delete(session, server)
            case _:
                assert_never(change)

    # Records.

    async def _move(self, session: LabletSession, move: Move) -> LabletSession:
        request = SessionMove(
            source=session.status,
            target=move.target,
            reason=move.reason[:1000],
            generation=session.generation,
            end_reason=move.end_reason,
        )
        moved = await self.control_plane.move(session.id, request)
        if move.target is READY:
            self.stats.on_ready(moved)
        return moved

    async def _unschedule(
        self, session: LabletSession, server: CmlServer | None, decision: Unschedule
    ) -> LabletSession | ReconciliationResult:
        """Look for another worker; a session that was ready and may not be placed again has failed.

        The worker keeps the claim of a lab, also if it is gone: that is reported in the next call, and found
        by the listing of its labs if this process dies before.
        """
        try:
            unscheduled = await self.control_plane.unschedule(
                session.id,
                decision.reason,
                generation=session.generation,
                is_worker_lost=decision.is_worker_lost,
            )
        except SessionChanged as refused:
            is_same = refused.current.generation == session.generation
            if session.status in (READY, RUNNING) and is_same:
                return await self._move(session, fail(decision.reason))
            raise
        if decision.is_lab_gone:
            await self._report_cleaned(session, server, CleanupProof.LAB_ABSENT)
        return unscheduled

    async def _intend(self, session: LabletSession, generation: int, is_previous_gone: bool) -> LabletSession:
        intent = ImportIntent(
            attempt=session.attempt, generation=generation, is_previous_gone=is_previous_gone
        )
        intended = await self.control_plane.intend_import(session.id, intent)
        self.observer.on_intent(intended)
        return intended

    async def _record(self, session: LabletSession, lab_id: str, *, is_adopted: bool) -> LabletSession:
        assert session.lab is not None
        lab = LabImported(generation=session.lab.generation, lab_id=lab_id, is_adopted=is_adopted)
        recorded = await self.control_plane.record_lab(session.id, lab)
        self.stats.labs["adopted" if is_adopted else "imported"] += 1
        return recorded

    async def _clean(
        self, session: LabletSession, server: CmlServer | None, proof: CleanupProof
    ) -> LabletSession | ReconciliationResult:
        ended = await self._report_cleaned(session, server, proof)
        if ended is None or ended.is_ended:
            self.stats.forget(session.id)
            return Success()
        return Requeue("its end is recorded", CONFLICT_SECONDS)

    async def _report_cleaned(
        self, session: LabletSession, server: CmlServer | None, proof: CleanupProof
    ) -> LabletSession | None:
        assert session.worker_id is not None
        report = LabCleaned(
            worker_id=session.worker_id,
            attempt=session.attempt,
            generation=session.lab.generation if session.lab is not None else 0,
            proof=proof,
            instance_id=server.instance_id if server is not None else None,
        )
        return await self.control_plane.report_cleaned(session.id, report)

    async def _report(self, session: LabletSession, report: Report) -> LabletSession | ReconciliationResult:
        """Record progress; the record here follows by the same function as that of the control plane."""
        generation = session.lab.generation if session.lab is not None else 0
        nodes = dict(report.nodes) if report.nodes is not None else None
        item = SessionProgress(
            session_id=session.id,
            attempt=session.attempt,
            generation=generation,
            steps=report.steps,
            nodes=nodes,
            probed=report.probed,
            cleanup=report.cleanup,
        )
        if await self.control_plane.report_progress([item]):
            return Requeue("the session has moved on", CONFLICT_SECONDS)
        return record_progress(
            session,
            attempt=session.attempt,
            generation=generation,
            steps=report.steps,
            nodes=nodes,
            probed=report.probed,
            cleanup=report.cleanup,
            now=self.clock.now(),
        )

    # Effects on nothing.

    async def _probe(
        self, session: LabletSession, server: CmlServer, attempt: int
    ) -> LabletSession | ReconciliationResult:
        """Test the ports that were not open yet; a closed one may be opened in a moment."""
        if self.port_probe is None:
            skipped = StepReport(
                step=LabStep.PROBE, status=StepStatus.SKIPPED, attempts=attempt, detail="PROBE_PORTS is off"
            )
            return await self._report(session, Report((skipped,)))
        specs = probed_ports(session.demand.ports, session.ports)
        answers = await self.port_probe.probe(server.host, specs.keys() - set(session.probed.open))
        step, probed = judge(specs, session.probed, answers, attempt=attempt)
        reported = await self._report(session, Report((step,), probed=probed))
        if step.status is StepStatus.RUNNING and isinstance(reported, LabletSession):
            return Requeue(step.detail, TRY_SECONDS)
        return reported

    # Effects on CML, each through the gate.

    async def _import(self, session: LabletSession, server: CmlServer) -> LabletSession:
        """Import, and record the id as the very next call."""
        topology = await self.control_plane.get_topology(session.id)
        self.observer.on_topology(session, topology)
        try:
            imported = await self.gate.import_lab(session, server, topology)
        except Unreachable:
            self.observer.on_import_without_answer(session)
            raise
        except LabRefused as refused:
            if refused.status in (401, 403):
                raise CredentialsRefused(str(refused)) from None
            return await self._move(session, fail(f"lab_invalid: {refused.description}"))
        recorded = await self._record(session, imported.lab_id, is_adopted=False)
        if imported.warnings:
            log.warning("CML warns of an import", session_id=session.id, warnings=imported.warnings[:10])
        return recorded

    async def _set_tags(
        self, session: LabletSession, server: CmlServer, nodes: Sequence[tuple[str, tuple[str, ...]]]
    ) -> LabletSession | ReconciliationResult:
        for node_id, tags in nodes:
            await self.gate.set_node_tags(session, server, node_id, tags)
        attempts = _attempts(session, LabStep.CHECK) + 1
        checking = StepReport(step=LabStep.CHECK, status=StepStatus.RUNNING, attempts=attempts)
        return await self._report(session, Report((checking,)))

    async def _start(self, session: LabletSession, server: CmlServer) -> LabletSession | ReconciliationResult:
        if session.status in IN_USE:
            return await self._restart(session, server)
        attempts = _attempts(session, LabStep.START) + 1
        try:
            await self.gate.start(session, server)
        except LabRefused as refused:
            failed = StepReport(
                step=LabStep.START,
                status=StepStatus.FAILED,
                attempts=attempts,
                detail=refused.description[:1000],
            )
            await self._report(session, Report((failed,)))
            return Requeue(str(refused), REFUSED_START_SECONDS)
        self.stats.labs["started"] += 1
        boots = _attempts(session, LabStep.BOOT) + 1
        started = StepReport(step=LabStep.START, status=StepStatus.COMPLETED, attempts=attempts)
        booting = StepReport(step=LabStep.BOOT, status=StepStatus.RUNNING, attempts=boots)
        return await self._report(session, Report((started, booting)))

    async def _restart(
        self, session: LabletSession, server: CmlServer
    ) -> LabletSession | ReconciliationResult:
        """Start a lab in use again; it counts as one restart, also if CML refuses it."""
        restarts = restarts_of(session) + 1
        try:
            await self.gate.start(session, server)
        except LabRefused as refused:
            detail = f"{running.STOPPED_OUTSIDE}: CML refuses to start the lab: {refused.description}"[:1000]
            stopped = StepReport(step=LabStep.RUN, status=StepStatus.FAILED, attempts=restarts, detail=detail)
            await self._report(session, Report((stopped,)))
            return Requeue(str(refused), LOOK_SECONDS)
        self.stats.labs["restarted"] += 1
        started = StepReport(
            step=LabStep.START,
            status=StepStatus.COMPLETED,
            attempts=_attempts(session, LabStep.START) + 1,
        )
        runs = StepReport(step=LabStep.RUN, status=StepStatus.COMPLETED, attempts=restarts)
        return await self._report(session, Report((started, runs)))

    async def _collect(
        self, session: LabletSession, server: CmlServer, collect: Collect
    ) -> LabletSession | ReconciliationResult:
        """Hand over what CML gives; a failure is tried again a few times, or noted for good."""
        assert session.lab is not None
        missing = await self._extract(session, server, collect)
        try:
            evidence = EvidenceCollected(
                attempt=session.attempt,
                generation=session.lab.generation,
                packed=pack(await self.observer.download(session, server)),
                detail=missing,
            )
        except EvidenceUnusable as error:
            return await self._note_collection(session, collect, StepStatus.FAILED, str(error))
        except (LabRefused, NotFound, Unreachable) as error:
            await self._note_collection(session, collect, StepStatus.RUNNING, str(error))
            return Requeue(str(error), POLL_SECONDS)
        collected = await self.control_plane.report_evidence(session.id, evidence)
        self.stats.labs["collected"] += 1
        return collected

    async def _note_collection(
        self, session: LabletSession, collect: Collect, status: StepStatus, detail: str
    ) -> LabletSession | ReconciliationResult:
        noted = StepReport(
            step=LabStep.COLLECT, status=status, attempts=collect.attempt, detail=detail[:1000]
        )
        return await self._report(session, Report((noted,)))

    async def _extract(self, session: LabletSession, server: CmlServer, collect: Collect) -> str:
        """Extract all configurations side by side; return what is missing."""
        extracted: Counter[bool] = Counter()

        async def extract(node_id: str) -> None:
            try:
                await self.gate.extract_configuration(session, server, node_id)
                extracted[True] += 1
            except (LabRefused, NotFound, Unreachable):
                extracted[False] += 1

        try:
            with suppress(TimeoutError):
                async with timeout(collect.seconds), asyncio.TaskGroup() as tasks:
                    for node_id in collect.node_ids:
                        tasks.create_task(extract(node_id), name="extract")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        missing = len(collect.node_ids) - extracted[True]
        return f"{missing} of {len(collect.node_ids)} configurations were not extracted" if missing else ""

    async def _stop(
        self, session: LabletSession, server: CmlServer, stop: Stop
    ) -> LabletSession | ReconciliationResult:
        for node_id in stop.node_ids:
            await self.gate.stop_node(session, server, node_id)
        if not stop.node_ids:
            await self.gate.stop(session, server)
        self.stats.labs["stopped"] += stop.attempt == 1
        requested = StepReport(step=LabStep.STOP, status=StepStatus.RUNNING, attempts=stop.attempt)
        cleanup = LabCleanup(is_stuck=bool(stop.node_ids)) if session.status is STOPPING else None
        return await self._report(session, Report((requested,), cleanup=cleanup))

    async def _wipe(self, session: LabletSession, server: CmlServer) -> LabletSession | ReconciliationResult:
        try:
            await self.gate.wipe(session, server)
        except LabRefused as refused:
            return await self._note_refusal(session, LabStep.WIPE, refused)
        done = LabCleanup(is_stopped=True, is_wiped=True) if session.status is STOPPING else None
        attempts = _attempts(session, LabStep.WIPE) + 1
        wiped = StepReport(step=LabStep.WIPE, status=StepStatus.COMPLETED, attempts=attempts)
        return await self._report(session, Report((wiped,), cleanup=done))

    async def _delete(
        self, session: LabletSession, server: CmlServer
    ) -> LabletSession | ReconciliationResult:
        try:
            await self.gate.delete(session, server)
        except LabRefused as refused:
            return await self._note_refusal(session, LabStep.DELETE, refused)
        self.stats.labs["deleted"] += 1
        done = LabCleanup(is_stopped=True, is_wiped=True, is_deleted=True)
        attempts = _attempts(session, LabStep.DELETE) + 1
        deleted = StepReport(step=LabStep.DELETE, status=StepStatus.COMPLETED, attempts=attempts)
        return await self._report(
            session, Report((deleted,), cleanup=done if session.status is STOPPING else None)
        )

    async def _note_refusal(
        self, session: LabletSession, step: LabStep, refused: LabRefused
    ) -> ReconciliationResult:
        """Observe the lab again; after a few refusals a person may be needed."""
        attempts = _attempts(session, step) + 1
        is_stuck = attempts >= STUCK_AFTER
        failed = StepReport(
            step=step, status=StepStatus.FAILED, attempts=attempts, detail=refused.description[:1000]
        )
        cleanup = LabCleanup(is_stuck=is_stuck) if session.status is STOPPING else None
        await self._report(session, Report((failed,), cleanup=cleanup))
        return Requeue(str(refused), STUCK_SECONDS if is_stuck else POLL_SECONDS)


def _attempts(session: LabletSession, step: LabStep) -> int:
    record = session.steps.get(step)
    return record.attempts if record is not None else 0
