"""Licenses: operators request, the worker controller acts and reports; a license that may leak is a debt.

The token is stored as a secret, under a name of its own, before the request that names it is recorded: a
crash in between leaves an unused secret, never a request without its token. The secret is removed once no
record names it any more. The fleet has a token of its own, which serves every worker that is to be licensed
and was given none (D-12); it stays until an operator removes it.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.control_plane.records.fleet_token import FLEET, LICENSES, has_fleet_token, read_terms, write_terms
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.control_plane.store.forward_compat import encode_over
from lcm.control_plane.store.port import Document, Fence, VersionConflict
from lcm.domain.errors import Conflict, NotFound, RequestError, UnknownReference
from lcm.domain.license import (
    NOT_REGISTERED,
    REFUSED,
    LicenseDebt,
    LicenseOperation,
    LicenseTerms,
    begin,
    complete,
    fail,
    observe,
    request_operation,
)
from lcm.domain.lifecycle import TERMINATED, TERMINATING, DesiredStatus
from lcm.domain.scaling import AuditEvent
from lcm.domain.worker import CmlLicense, Worker
from lcm.rest.schemas import LicenseReport, LicenseToken

DEBT = "license-debt"
MAX_ATTEMPTS: Final = 8

_debt = msgspec.json.Decoder(LicenseDebt)


async def request_license(
    records: Records,
    worker_id: str,
    token: str | None = None,
    *,
    terms: LicenseTerms | None = None,
    preconditions: Preconditions = UNCONDITIONAL,
) -> Worker:
    """Request a registration with this token, or the fleet's, as soon as CML is ready."""
    await records.workers.get(worker_id)
    if token is None:
        if not await has_fleet_token(records):
            raise UnknownReference("no license token is known; send one, or set PUT /api/settings/license")
        return await _request(records, worker_id, LicenseOperation.REGISTER, preconditions, FLEET, terms)
    token_ref = f"{worker_id}-{records.ids.new_id()[:8]}"
    await records.secrets.put(LICENSES, token_ref, token)
    try:
        worker = await _request(
            records, worker_id, LicenseOperation.REGISTER, preconditions, token_ref, terms
        )
    except RequestError:  # nothing else proves that the record does not name it
        await records.secrets.remove(LICENSES, token_ref)
        raise
    if worker.license.token_ref != token_ref:  # the request was carried out before
        await records.secrets.remove(LICENSES, token_ref)
    return worker


async def request_deregistration(
    records: Records, worker_id: str, *, preconditions: Preconditions = UNCONDITIONAL
) -> Worker:
    """Request that the license is returned to its pool."""
    return await _request(records, worker_id, LicenseOperation.DEREGISTER, preconditions)


async def set_fleet_token(records: Records, token: str, terms: LicenseTerms | None = None) -> None:
    """Store the token with which workers that should be licensed are registered from now on, and the terms.

    The terms first: a crash in between leaves no token that is used under others.
    """
    await write_terms(records.store, terms or LicenseTerms())
    await records.secrets.put(LICENSES, FLEET, token)


async def remove_fleet_token(records: Records) -> None:
    await records.secrets.remove(LICENSES, FLEET)


async def queue_due_licenses(records: Records, caches: Caches) -> int:
    """Request a registration for every worker that lacks its license; return how many."""
    await caches.worker_cache.load()
    due = [known.id for known in caches.worker_cache if known.is_license_due]
    if not due or not await has_fleet_token(records):
        return 0
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if not worker.is_license_due:
            return worker
        requested = request_operation(worker.license, LicenseOperation.REGISTER, token_ref=FLEET, now=now)
        return replace(worker, license=requested, updated_at=now)

    for worker_id in due:
        await records.workers.change(worker_id, decide)
    return len(due)


async def license_token(records: Records, worker_id: str) -> LicenseToken:
    """Return the token to register with and the terms, for the worker controller alone."""
    worker = await records.workers.get(worker_id)
    token_ref = worker.license.token_ref
    token = await records.secrets.get(LICENSES, token_ref) if token_ref else None
    if token is None:
        raise NotFound(f"no license token is kept for worker {worker_id}; ask for a license again")
    return LicenseToken(token=token, terms=worker.license.terms.over(await read_terms(records.store)))


async def report_license(
    records: Records,
    worker_id: str,
    step: str,
    operation: LicenseOperation,
    report: LicenseReport,
    *,
    fence: Fence,
) -> Worker:
    """Record that the controller started, completed or failed an operation, or observed a license."""
    now = records.clock.now()
    before = await records.workers.get(worker_id)

    def decide(worker: Worker) -> Worker:
        if worker.status is TERMINATED:
            return worker  # a late report: a license held at that time is a debt by now
        match step:
            case "start":
                changed = begin(worker.license, operation, now=now)
            case "observe":
                changed = observe(
                    worker.license,
                    is_held=report.is_held,
                    is_free=report.is_free,
                    tier=report.tier,
                    now=now,
                )
            case "complete":
                was_held = not report.is_free or worker.has_license
                changed = complete(worker.license, operation, tier=report.tier, was_held=was_held, now=now)
                is_free = operation is LicenseOperation.DEREGISTER
                worker = _with_registration(worker, NOT_REGISTERED if is_free else None)
            case _:
                if report.is_free:
                    worker = _with_registration(worker, REFUSED)
                changed = fail(
                    worker.license,
                    operation,
                    reason=report.reason,
                    is_free=report.is_free,
                    give_up=report.is_debt,
                    now=now,
                )
        return replace(worker, license=changed, updated_at=now) if changed != worker.license else worker

    if report.is_debt and before.may_hold_license:
        await _record_debt(records, worker_id, report.reason)
    if step == "complete" and operation is LicenseOperation.DEREGISTER and not report.is_free:
        decide(before)  # what is refused settles nothing
        await _settle_confirmed(records, before, fence)
    worker = await _change(records, worker_id, decide, fence, report.expected_version)
    if worker.status is TERMINATING and operation is LicenseOperation.DEREGISTER:
        await _audit_end(records, before, step, report, by=fence.id)
    return worker


def _with_registration(worker: Worker, status: str | None) -> Worker:
    """Replace what CML said of its license before: neither sessions nor a deletion may depend on that."""
    health, known = worker.cml.health, worker.cml.license
    if health is not None and health.is_licensed is not None:
        health = replace(health, is_licensed=None)
    said = replace(known or CmlLicense(), registration_status=status) if status else None
    return replace(worker, cml=replace(worker.cml, health=health, license=said))


async def _audit_end(records: Records, worker: Worker, step: str, report: LicenseReport, *, by: str) -> None:
    """Audit the outcome for the license of a worker that is being terminated, as it was before the report."""
    if step == "complete" and (worker.has_license or not report.is_free):
        event, reason = AuditEvent.LICENSE_DEREGISTERED, "released before the instance is terminated"
    elif report.is_debt and worker.may_hold_license:
        event, reason = AuditEvent.LICENSE_DEBT_RECORDED, report.reason
    else:
        return
    await records.audit.note(event, worker, by=by, reason=reason)


async def change_that_may_lose_an_instance(
    records: Records,
    worker_id: str,
    decide: Callable[[Worker], Worker],
    *,
    expected_version: int,
    fence: Fence,
) -> Worker:
    """Change the record; a license lost with its instance becomes a debt before the record forgets it."""
    before = await records.workers.get(worker_id)
    if before.version == expected_version and before.has_license:
        after = decide(before)
        if not after.has_license:
            await _record_debt(records, worker_id, f"its instance is gone: {after.status_reason}")
    return await _change(records, worker_id, decide, fence, expected_version)


async def list_debts(records: Records) -> list[LicenseDebt]:
    """Return the licenses that terminated workers may still hold, oldest first."""
    debts = [_debt.decode(document.body) for document in await records.store.list_all(DEBT)]
    return sorted(debts, key=lambda debt: debt.since)


async def settle_debt(records: Records, worker_id: str, *, by: str) -> LicenseDebt:
    """Record that an operator released the license in the smart account, or found it free."""
    for _ in range(MAX_ATTEMPTS):
        document = await records.store.get(DEBT, worker_id)
        if document is None:
            raise NotFound(f"worker {worker_id} has no license debt; list debts with GET /api/license-debts")
        debt = _debt.decode(document.body)
        if debt.settled_by is not None:
            return debt
        settled = replace(debt, settled_by=by, settled_at=records.clock.now())
        body = encode_over(document.body, debt, settled)
        try:
            await records.store.replace(Document(DEBT, worker_id, document.version + 1, body))
        except VersionConflict:
            continue
        return settled
    raise Conflict(f"several requests change the debt of worker {worker_id} at once; try again")


async def _settle_confirmed(records: Records, worker: Worker, fence: Fence) -> None:
    """Settle an earlier debt of the same server: CML confirmed that Cisco counts no license for it now.

    Before the report is recorded: once it is, it is not repeated, and an open debt would stay.
    """
    if await records.store.get(DEBT, worker.id) is None:
        return
    await records.workers.verify(worker.id, expected_version=worker.version, fence=fence)
    await settle_debt(records, worker.id, by="CML")


async def _request(
    records: Records,
    worker_id: str,
    operation: LicenseOperation,
    preconditions: Preconditions,
    token_ref: str | None = None,
    terms: LicenseTerms | None = None,
) -> Worker:
    now = records.clock.now()

    def decide(worker: Worker) -> Worker:
        if worker.desired_status is DesiredStatus.TERMINATED:
            raise Conflict(f"worker {worker_id} is being deleted; its license is released automatically")
        if not worker.is_trusted:
            raise Conflict(
                f"worker {worker_id} is not adopted: LCM does not log in to its CML; adopt it first"
            )
        requested = request_operation(
            worker.license,
            operation,
            token_ref=token_ref,
            may_be_held=worker.may_hold_license,
            terms=terms,
            now=now,
        )
        # A new request even if it equals the last: the controller must not wait out the last one's delay.
        return replace(worker, license=requested, generation=worker.generation + 1, updated_at=now)

    return await _change(records, worker_id, preconditions.guard(decide))


async def _change(
    records: Records,
    worker_id: str,
    decide: Callable[[Worker], Worker],
    fence: Fence | None = None,
    expected_version: int | None = None,
) -> Worker:
    """Change the record, then remove the token that it no longer names."""
    before: str | None = None

    def remembering(worker: Worker) -> Worker:
        nonlocal before
        before = worker.license.token_ref
        return decide(worker)

    worker = await records.workers.change(
        worker_id, remembering, fence=fence, expected_version=expected_version
    )
    if before is not None and before not in (FLEET, worker.license.token_ref):
        await records.secrets.remove(LICENSES, before)
    return worker


async def _record_debt(records: Records, worker_id: str, reason: str) -> None:
    """Store the debt before the report that releases the instance; repeated, it stays one debt."""
    worker = await records.workers.get(worker_id)
    body = msgspec.json.encode(
        LicenseDebt(worker_id=worker_id, worker_name=worker.name, reason=reason, since=records.clock.now())
    )
    known = await records.store.get(DEBT, worker_id)
    try:
        if known is None:
            await records.store.insert(Document(DEBT, worker_id, 1, body))
        elif _debt.decode(known.body).settled_by is not None:
            await records.store.replace(Document(DEBT, worker_id, known.version + 1, body))
    except VersionConflict:
        return
