"""Step 6 of a running worker, and the first of a terminating one: carry out a pending license operation.

An operation takes many short passes, so nothing waits here and a crash loses nothing: the state that CML
reports decides what is done next.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

import structlog

from lcm.cml.sessions import CmlServer
from lcm.core.backoff import Backoff
from lcm.core.clock import Clock
from lcm.core.redaction import redactor
from lcm.domain.errors import NotFound, RequestError, TransientError
from lcm.domain.launch import WorkerId
from lcm.domain.license import RELEASE_PATIENCE, LicenseOperation, LicenseTerms
from lcm.domain.lifecycle import TERMINATING
from lcm.domain.worker import Worker
from lcm.rest.schemas import LicenseReport
from lcm.worker_controller.ports import HAS_NONE, POOL_NOT_NOTIFIED, CmlLicensing, ControlPlane, LicenseState

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 3.0
RESULT_WITHIN_SECONDS: Final = 120.0
MIN_DEREGISTRATION_SECONDS: Final = 5.0
"""Left to a deregistration even if the clocks of the control plane and the controller differ."""
ANSWER_LOST: Final = "CML removed the license, but its answer was lost: Cisco may not have been notified"
REGISTER, DEREGISTER = LicenseOperation.REGISTER, LicenseOperation.DEREGISTER


class Next(Enum):
    """The next step of an operation in progress."""

    COMPLETE = "complete"
    REGISTER = "register"
    DEREGISTER = "deregister"
    RECORD_DEBT = "record debt"
    FAIL = "fail"
    WAIT = "wait"


def decide(
    operation: LicenseOperation, state: LicenseState, *, was_requested: bool, is_answer_lost: bool = False
) -> Next:
    """Decide by the state that CML reports; what was requested before is not requested twice.

    A server that is free after a deregistration whose answer was lost does not report whether Cisco was
    notified.
    """
    if operation is DEREGISTER:
        if state.is_free:
            return Next.RECORD_DEBT if is_answer_lost else Next.COMPLETE
        return Next.DEREGISTER if state.is_registered or not was_requested else Next.WAIT
    if state.is_registered:
        return Next.COMPLETE
    if not was_requested:
        return Next.REGISTER
    return Next.FAIL if state.failure else Next.WAIT


class LicenseRequest(NamedTuple):
    """The request to CML in the attempt that began then."""

    attempt: datetime | None
    terms: LicenseTerms = LicenseTerms()
    is_count_requested: bool = False
    """The nodes of the terms were requested."""
    token: str = ""
    """Kept to be removed from CML's error texts: the stored token may have been replaced by then."""
    is_unanswered: bool = False
    """CML has not answered it, so it may not have arrived."""
    is_deregistered: bool = False
    """CML confirmed that the license is free, in its pool too."""

    def has_arrived(self, state: LicenseState) -> bool:
        """Whether CML has it, as far as its state shows."""
        return not self.is_unanswered or not state.is_free or bool(state.failure)


@dataclass
class LicenseRegistrar:
    """Calls CML once per attempt; a call that may not have arrived is repeated, which CML tolerates."""

    control_plane: ControlPlane
    cml: CmlLicensing
    server_of: Callable[[Worker], CmlServer | None]
    check_leadership: Callable[[], None]
    """Call right before every change at CML, which cannot be fenced."""
    clock: Clock
    counts: Counter[str]
    count_drift: Callable[[Worker, str], None]
    deregistration_seconds: float
    """How long CML may take to answer a deregistration."""
    _requests: dict[WorkerId, LicenseRequest] = field(default_factory=dict)
    _first_seen: dict[WorkerId, tuple[datetime | None, float]] = field(default_factory=dict)
    """The last change of a license, and the monotonic time of its first observation."""
    _backoff: Backoff = field(default_factory=Backoff)

    def forget(self, worker_id: WorkerId) -> None:
        self._requests.pop(worker_id, None)
        self._first_seen.pop(worker_id, None)

    async def advance(self, worker: Worker) -> float | None:
        """Take the next step. Returns the seconds until the one after it; None if nothing is pending."""
        license = worker.license
        operation = license.pending_operation
        server = self.server_of(worker)
        if server is None:
            return None
        if operation is None:
            await self._follow_cml(worker, server)
            return None
        if not license.operation_in_progress:
            waits = self._backoff.delay_seconds(license.attempts) if license.attempts else 0.0
            passed = self._seconds_since_change(worker)
            if passed < waits:
                return waits - passed
            worker = await self._report(worker, "start", operation, LicenseReport())
        try:
            worker = await self._take_next_step(worker, operation, server, license.deregistration_asked)
        except RequestError:
            raise
        except TransientError as error:
            worker = await self._fail_if_late(worker, operation, str(error))
        return POLL_SECONDS if worker.license.pending_operation is not None else None

    async def _follow_cml(self, worker: Worker, server: CmlServer) -> None:
        """Follow a license that was registered or lost outside LCM (D-23).

        CML's last report only says when to look: it may be older than the last operation.
        """
        if worker.cml.license is None or worker.cml.reports_license is worker.license.may_be_held:
            return
        try:
            state = await self.cml.state(server)
        except TransientError as error:
            log.info("license not read", worker_id=worker.id, error=str(error))
            return
        if worker.license.may_be_held and state.is_free:
            await self._observe(worker, state)
            self.count_drift(worker, "license_lost")
            log.warning("license lost", worker_id=worker.id)
        elif state.is_registered and not worker.license.may_be_held:
            await self._observe(worker, state)
            log.info("license registered outside LCM", worker_id=worker.id, tier=state.tier)

    async def _observe(self, worker: Worker, state: LicenseState) -> Worker:
        seen = LicenseReport(
            is_held=not state.is_free,
            is_free=state.is_free,
            tier=state.tier,
            expected_version=worker.version,
        )
        return await self._report(worker, "observe", REGISTER, seen)

    async def record_debt(self, worker: Worker, reason: str) -> Worker:
        """Record a license that may still be held and cannot be freed by LCM: a person must settle it."""
        log.warning("license not released", worker_id=worker.id, reason=reason)
        operation = worker.license.pending_operation or DEREGISTER
        return await self._report(worker, "fail", operation, LicenseReport(reason=reason, is_debt=True))

    async def _take_next_step(
        self, worker: Worker, operation: LicenseOperation, server: CmlServer, was_deregistration_asked: bool
    ) -> Worker:
        attempt = worker.license.changed_at
        state = await self.cml.state(server)
        if operation is DEREGISTER and not state.is_free and not worker.license.may_be_held:
            # Registered outside LCM: from here on a crash leaves a record that says so.
            return await self._observe(worker, state)
        request = self._requests.get(worker.id)
        if request is not None and request.attempt != attempt:
            request = None  # it belongs to an earlier attempt
        is_answer_lost = was_deregistration_asked and not (request and request.is_deregistered)
        was_requested = request is not None and request.has_arrived(state)
        match decide(operation, state, was_requested=was_requested, is_answer_lost=is_answer_lost):
            case Next.COMPLETE:
                if operation is REGISTER:
                    return await self._complete_registration(worker, server, state, request)
                was_free = operation is DEREGISTER and not (request and request.is_deregistered)
                return await self._complete(worker, operation, state.tier, was_free=was_free)
            case Next.REGISTER:
                return await self._register(worker, server, state)
            case Next.DEREGISTER:
                self.check_leadership()
                self._requests[worker.id] = LicenseRequest(attempt)
                return await self._deregister(worker, server)
            case Next.RECORD_DEBT:
                return await self.record_debt(worker, ANSWER_LOST)
            case Next.FAIL:
                reason = _without(request.token if request else "", state.failure)
                return await self._fail(worker, operation, reason, is_free=state.is_free)
            case Next.WAIT:
                return await self._fail_if_late(worker, operation, "CML did not finish it")

    async def _register(self, worker: Worker, server: CmlServer, state: LicenseState) -> Worker:
        """Request it as Cisco's own tools do: license server, product, registration, and nodes at the end."""
        try:
            granted = await self.control_plane.get_license_token(worker)
        except NotFound as error:
            # The fleet's token can be removed at any time.
            return await self._fail(worker, REGISTER, str(error), is_free=state.is_free)
        token, terms = granted.token, granted.terms
        redactor.protect(token)
        if state.is_held and (mismatch := _other_product(terms, state)):
            return await self._fail(worker, REGISTER, mismatch)
        self.check_leadership()
        refusal = await self.cml.prepare(server, terms, state)
        if not refusal:
            self.check_leadership()
            request = LicenseRequest(worker.license.changed_at, terms, token=token, is_unanswered=True)
            self._requests[worker.id] = request
            refusal = await self.cml.register(server, token, again=state.is_held)
            self._requests[worker.id] = request._replace(is_unanswered=False)
        if not refusal:
            return worker
        return await self._fail(worker, REGISTER, _without(token, refusal), is_free=state.is_free)

    async def _complete_registration(
        self, worker: Worker, server: CmlServer, state: LicenseState, request: LicenseRequest | None
    ) -> Worker:
        """Complete it if the server has the product and the nodes of the terms; request the nodes, once."""
        if request is None:  # registered before, or by a controller that is gone
            request = LicenseRequest(worker.license.changed_at, await self._terms_of(worker))
        terms = request.terms
        if mismatch := _other_product(terms, state):
            return await self._fail(worker, REGISTER, mismatch)
        if terms.node_count in (None, state.node_count) or state.node_feature is None:
            return await self._complete(worker, REGISTER, state.tier)
        if request.is_count_requested:
            return await self._fail_if_late(worker, REGISTER, f"CML has not {terms.node_count} more nodes")
        self.check_leadership()
        self._requests[worker.id] = request._replace(is_count_requested=True)
        refusal = await self.cml.set_node_count(server, state.node_feature, terms.node_count or 0)
        return await self._fail(worker, REGISTER, refusal) if refusal else worker

    async def _terms_of(self, worker: Worker) -> LicenseTerms:
        try:
            return (await self.control_plane.get_license_token(worker)).terms
        except NotFound:
            return worker.license.terms

    async def _deregister(self, worker: Worker, server: CmlServer) -> Worker:
        refusal = await self.cml.deregister(server, within_seconds=self._deregistration_seconds(worker))
        if refusal == POOL_NOT_NOTIFIED:
            # The server is free, so no deregistration can be repeated: only a person can free the pool.
            return await self.record_debt(worker, refusal)
        if refusal == HAS_NONE:
            # It held one a moment ago: this deregistration has succeeded before, and its answer was lost.
            is_free = (await self.cml.state(server)).is_free
            return await self.record_debt(worker, ANSWER_LOST) if is_free else worker
        if refusal:
            return await self._fail(worker, DEREGISTER, refusal)
        self._requests[worker.id] = LicenseRequest(worker.license.changed_at, is_deregistered=True)
        # At once, while the answer is known: after a restart it would count as lost.
        state = await self.cml.state(server)
        return await self._complete(worker, DEREGISTER, state.tier) if state.is_free else worker

    def _deregistration_seconds(self, worker: Worker) -> float:
        """The time limit; of a worker that is deleted no more than is left of the patience for that."""
        if worker.status is not TERMINATING:
            return self.deregistration_seconds
        left = RELEASE_PATIENCE - (self.clock.now() - worker.status_since)
        return min(max(left.total_seconds(), MIN_DEREGISTRATION_SECONDS), self.deregistration_seconds)

    async def _complete(
        self, worker: Worker, operation: LicenseOperation, tier: str | None, *, was_free: bool = False
    ) -> Worker:
        """Report the end of an operation; with `was_free` CML held none before it was asked."""
        done = await self._report(worker, "complete", operation, LicenseReport(tier=tier, is_free=was_free))
        self.forget(worker.id)
        if was_free and not worker.has_license:
            return done
        self.counts[f"license_{operation}ed_count"] += 1
        log.info("license operation completed", worker_id=worker.id, operation=str(operation))
        return done

    async def _fail(
        self, worker: Worker, operation: LicenseOperation, reason: str, *, is_free: bool = False
    ) -> Worker:
        log.warning("license operation failed", worker_id=worker.id, operation=str(operation), reason=reason)
        return await self._report(worker, "fail", operation, LicenseReport(reason=reason, is_free=is_free))

    async def _fail_if_late(self, worker: Worker, operation: LicenseOperation, reason: str) -> Worker:
        if self._seconds_since_change(worker) < RESULT_WITHIN_SECONDS:
            return worker
        return await self._fail(worker, operation, f"{reason} within {RESULT_WITHIN_SECONDS:g} s")

    async def _report(
        self, worker: Worker, step: str, operation: LicenseOperation, report: LicenseReport
    ) -> Worker:
        reported = await self.control_plane.report_license(worker, step, operation, report)
        self._seconds_since_change(reported)
        return reported

    def _seconds_since_change(self, worker: Worker) -> float:
        """Since its first observation, by the local clock: the control plane's clock may differ."""
        changed_at, now = worker.license.changed_at, self.clock.monotonic()
        known, seen_at = self._first_seen.get(worker.id, (None, now))
        if known != changed_at:
            seen_at = now
        self._first_seen[worker.id] = changed_at, seen_at
        return now - seen_at


def _other_product(terms: LicenseTerms, state: LicenseState) -> str:
    """Why the terms cannot be met on a registered server; empty if they can."""
    if terms.product_license in (None, state.tier):
        return ""
    return f"it is registered as {state.tier}; release that license before {terms.product_license}"


def _without(token: str, reason: str) -> str:
    """Remove the token from an error text: CML quotes a token that it does not know."""
    return reason.replace(token, "…") if token else reason
