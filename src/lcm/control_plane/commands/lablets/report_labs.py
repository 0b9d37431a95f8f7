"""The lablet controller reports every lab of a worker. What a crash leaves undone the next listing does.

1. Each listed lab is recorded, with whose it is; a lab that two full listings lack is removed or orphaned.
2. The removal of leaked labs is requested, or why they are kept is said.
3. The worker learns what the labs take of it; retained claims are released if their labs are gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from lcm.control_plane.commands.lablets.lab_standings import Standings, note_lab, note_release
from lcm.control_plane.commands.together import all_of
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.lablet.admission import note_missing_labs
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.claim import Claim, ports_of
from lcm.domain.lablet.lab_discovery import is_seen, listed, summarize, swept, unlisted
from lcm.domain.lablet.lab_standing import seconds_to_confirmation
from lcm.domain.lablet.listed_lab import LabKind
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.rest.lab_reports import LabListingReceipt, LabListingReport


async def report_labs(
    records: Records, policies: Policies, worker_id: str, report: LabListingReport, *, by: str, fence: Fence
) -> LabListingReceipt:
    """Record a listing. A partial one adds what it shows and proves no absence."""
    worker = await records.workers.get(worker_id)
    if not worker.is_live or worker.instance.id != report.instance_id:
        raise Conflict(
            f"the worker is {worker.status} on instance {worker.instance.id}; list the labs of that instance"
        )
    before = {lab.lab_id: lab for lab in await records.labs.of(worker_id)}
    standings = await Standings.read(records, report.instance_id)
    await _record_listed(records, standings, worker, report, fence)
    if report.is_full:
        await _record_unlisted(records, standings, worker, report, fence)
        await _sweep(records, policies, worker, report, fence)
    labs = await records.labs.of(worker_id)
    await _record_summary(records, standings, worker, report, labs, by, fence)
    await _audit(records, before, labs, by)
    return LabListingReceipt(
        **Counter(str(lab.kind) for lab in labs if lab.kind is not None),
        again_in_seconds=seconds_to_confirmation(labs, records.clock.now()),
    )


async def _record_listed(
    records: Records, standings: Standings, worker: Worker, report: LabListingReport, fence: Fence
) -> None:
    now = records.clock.now()

    async def record(number: int) -> None:
        lab = report.labs[number]
        if records.labs.was_deleted_after(worker.id, lab.lab_id, report.taken_at):
            return
        standing = await standings.of(lab.lab_id, lab.mark)
        await records.labs.revise(
            worker.id,
            lab.lab_id,
            lambda known: listed(
                known,
                lab,
                standing,
                worker_id=worker.id,
                is_full=report.is_full,
                taken_at=report.taken_at,
                now=now,
            ),
            fence=fence,
        )

    await all_of(record(number) for number in range(len(report.labs)))


async def _record_unlisted(
    records: Records, standings: Standings, worker: Worker, report: LabListingReport, fence: Fence
) -> None:
    now = records.clock.now()
    shown = {lab.lab_id for lab in report.labs}.union(report.unread)

    async def record(lab_id: str) -> None:
        def decide(known: LabRecord | None) -> LabRecord | None:
            return known and unlisted(
                known,
                taken_at=report.taken_at,
                last_listed_at=worker.cml.labs.listed_at,
                is_owned=standings.is_owned(lab_id),
                now=now,
            )

        await records.labs.revise(worker.id, lab_id, decide, fence=fence)

    missing = [lab.lab_id for lab in await records.labs.of(worker.id) if lab.lab_id not in shown]
    await all_of(record(lab_id) for lab_id in missing)


async def _sweep(
    records: Records, policies: Policies, worker: Worker, report: LabListingReport, fence: Fence
) -> None:
    now = records.clock.now()
    shown = {lab.lab_id for lab in report.labs}
    labs = await records.labs.of(worker.id)
    for lab in labs:
        if lab.kind is LabKind.LEAKED and lab.lab_id in shown:
            await records.labs.revise(
                worker.id,
                lab.lab_id,
                lambda known: known and swept(known, labs, policies.leaked_labs, now),
                fence=fence,
            )


async def _record_summary(
    records: Records,
    standings: Standings,
    worker: Worker,
    report: LabListingReport,
    labs: Sequence[LabRecord],
    by: str,
    fence: Fence,
) -> None:
    """Record on the worker what placement must know, and release the retained claims whose labs are gone."""
    now = records.clock.now()
    adopted = {lab.lab_id for lab in labs if lab.kind is LabKind.ADOPTED}
    shown = {lab.lab_id for lab in report.labs} - adopted
    held: dict[tuple[str, int], Claim] = {}

    missing = {
        (claim.session_id, claim.attempt)
        for claim in worker.claims
        if claim.is_retained
        and not is_seen(labs, claim.session_id, claim.lab_generation)
        and await standings.lab_of(claim) not in shown
    }

    def decide(current: Worker) -> Worker:
        held.clear()
        if not current.is_live or current.instance.id != report.instance_id:
            return current
        held.update(((claim.session_id, claim.attempt), claim) for claim in current.claims)
        if report.is_full and not report.unread:
            current = note_missing_labs(current, missing, now=now)
        summary = summarize(
            records.labs.now_of(current.id),
            current.claims,
            listed_at=now if report.is_full else current.cml.labs.listed_at,
            is_partial=not report.is_full,
        )
        return replace(current, cml=replace(current.cml, labs=summary))

    changed = await records.workers.change(worker.id, decide, fence=fence)
    for claim in changed.claims:
        held.pop((claim.session_id, claim.attempt), None)
    for claim in held.values():
        await note_release(records, worker.id, claim, by=by)
    await _audit_port_conflicts(records, worker, changed, by)


async def _audit_port_conflicts(records: Records, before: Worker, after: Worker, by: str) -> None:
    """PATty serves only one of two nodes that ask for the same port, and says so only in its log."""
    known, found = (
        ports_of(worker.claims).intersection(worker.cml.labs.foreign_ports) for worker in (before, after)
    )
    if found - known:
        ports = ", ".join(map(str, sorted(found - known)))
        await records.lablet_audit.note(
            LabletEvent.PORT_CONFLICT,
            by=by,
            reason=f"labs of no session use ports that are granted to sessions: {ports}",
            worker_id=after.id,
        )


async def _audit(
    records: Records, before: Mapping[str, LabRecord], labs: Iterable[LabRecord], by: str
) -> None:
    for lab in labs:
        known = before.get(lab.lab_id)
        if lab.leak_kept and (known is None or not known.leak_kept):
            await note_lab(
                records,
                LabletEvent.LAB_LEAK_REPORTED,
                lab,
                by=by,
                reason=f"{lab.leak}; not removed: {lab.leak_kept}",
            )
        if lab.kind is LabKind.ORPHANED and (known is None or known.kind is not LabKind.ORPHANED):
            await note_lab(
                records, LabletEvent.LAB_LOST, lab, by=by, reason="two full listings of its CML lack the lab"
            )
