"""Whether a worker takes a session, judged on the worker's record.

The control plane calls these inside the compare-and-set of the worker, which drains, pauses and other
placements share: what is judged here holds when it is written.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from lcm.domain.errors import Conflict, PlacementRefused
from lcm.domain.lablet.claim import Claim, ports_of
from lcm.domain.lablet.definition import Demand, LicenseTier
from lcm.domain.lablet.filters import Label, Room, judge, vector
from lcm.domain.lablet.lab_discovery import summarize
from lcm.domain.lablet.lab_standing import LEAKED_FOR
from lcm.domain.lablet.ports import COOLING, PortRange, pick_ports
from lcm.domain.lablet.rooms import WorkerRoom
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import PlacementWorker
from lcm.domain.license import LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import DRAINING
from lcm.domain.pause import PauseReason, withdraw_decision
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import CmlLicense, Worker

_WITH_NODE_LIMIT: Final = {
    "CML_Personal": LicenseTier.PERSONAL,
    "CML_Personal40": LicenseTier.PERSONAL,
}
"""CML's names of the licenses that limit nodes; the others count as enterprise."""


def license_tier(worker: Worker) -> LicenseTier | None:
    """The tier of the worker's CML; None if it is not known."""
    seen = worker.cml.license or CmlLicense()
    product = seen.product_license or worker.license.tier
    is_registered = worker.license.status is LicenseStatus.REGISTERED
    if product and (is_registered or seen.registration_status == "COMPLETED"):
        return _WITH_NODE_LIMIT.get(product, LicenseTier.ENTERPRISE)
    return LicenseTier.EVALUATION if seen.authorization_status == "EVAL" else None


def is_licensing(worker: Worker, *, has_fleet_token: bool = False) -> bool:
    """Whether a worker that lacks its license is about to get it; its CML starts no lab before."""
    health = worker.cml.health
    if health is not None and health.is_licensed:
        return False
    is_requested = worker.license.pending_operation is LicenseOperation.REGISTER
    return is_requested or (has_fleet_token and worker.is_license_due)


def view_of(
    worker: Worker,
    *,
    early_at: datetime | None = None,
    ready_at: datetime | None = None,
    has_fleet_token: bool = False,
) -> PlacementWorker:
    """The worker as placement sees it. One that is being licensed still comes up."""
    health = worker.cml.health
    is_coming = is_licensing(worker, has_fleet_token=has_fleet_token)
    is_licensed = health.is_licensed if health is not None and not is_coming else None
    definitions = worker.cml.definitions
    return PlacementWorker(
        id=worker.id,
        name=worker.name,
        region=worker.aws_region,
        status=worker.status,
        desired_status=worker.desired_status,
        is_ready=worker.cml.is_ready and not is_coming,
        declared=worker.declared_capacity,
        reserve=worker.reserve,
        claims=worker.claims,
        foreign_ports=frozenset(worker.cml.labs.foreign_ports),
        foreign_load=worker.cml.labs.foreign_load,
        license=license_tier(worker),
        is_licensed=is_licensed,
        cml_version=worker.cml.version,
        node_definitions=frozenset(definitions.node_definitions) if definitions is not None else None,
        images=frozenset(definitions.images) if definitions is not None else None,
        has_nested_virtualization=False if health is not None and health.lacks_kvm else None,
        is_drained_by_scale_down=worker.status is DRAINING
        and worker.pause.reason is PauseReason.IDLE_TIMEOUT,
        early_at=early_at,
        ready_at=ready_at,
    )


def claim(
    worker: Worker,
    demand: Demand,
    *,
    session_id: str,
    attempt: int,
    ends_at: datetime | None,
    ports: PortRange,
    now: datetime,
) -> Worker:
    """Add the claim of one attempt, if every filter admits it. Raises PlacementRefused, NoFreePort.

    Repeating it changes nothing.
    """
    if find_claim(worker, session_id, attempt) is not None:
        return worker
    if not worker.is_trusted:
        raise PlacementRefused(Label.STATUS, f"worker {worker.name} is not adopted: its CML gets no login")
    view = _admit(worker, demand, ports, now)
    granted = pick_ports(
        demand.ports,
        taken=view.foreign_ports | ports_of(worker.claims),
        within=ports,
        freed_at=worker.freed_ports,
        now=now,
    )
    added = Claim(
        session_id=session_id, attempt=attempt, needs=demand.needs, ports=granted, at=now, ends_at=ends_at
    )
    return replace(
        worker,
        claims=(*worker.claims, added),
        nominations=_without(worker.nominations, session_id),
        pause=withdraw_decision(worker.pause, now=now),
        updated_at=now,
    )


def put_back(
    worker: Worker, session: LabletSession, labs: Iterable[LabRecord], *, ports: PortRange, now: datetime
) -> Worker:
    """Add the claim that the worker lost of a session whose lab it has, as a new one would be admitted.

    `labs` are those of the worker: this lab counts as one of no session meanwhile. Repeating it changes
    nothing. Raises PlacementRefused.
    """
    if session.lab is None or find_claim(worker, session.id, session.attempt) is not None:
        return worker
    lost = Claim(
        session_id=session.id,
        attempt=session.attempt,
        needs=session.demand.needs,
        ports=session.ports,
        at=now,
        ends_at=session.ends_at,
        lab_generation=session.lab.generation,
    )
    claims = (*worker.claims, lost)
    worker = count_labs(worker, labs, claims)
    view = _admit(worker, replace(session.demand, ports=()), ports, now)
    taken = (view.foreign_ports | ports_of(worker.claims)).intersection(lost.ports.values())
    if taken:
        text = f"worker {worker.name} has granted {', '.join(map(str, sorted(taken)))} to others"
        raise PlacementRefused(Label.PORTS, text)
    return replace(worker, claims=claims, updated_at=now)


def count_labs(worker: Worker, labs: Iterable[LabRecord], claims: Iterable[Claim]) -> Worker:
    """The worker with what its labs take of it beside these claims; as a listing says, and between two."""
    known = worker.cml.labs
    summary = summarize(labs, claims, listed_at=known.listed_at, is_partial=known.is_partial)
    return replace(worker, cml=replace(worker.cml, labs=summary))


def _admit(worker: Worker, demand: Demand, ports: PortRange, now: datetime) -> PlacementWorker:
    """Return the worker as placement sees it, if every filter admits the demand. Raises PlacementRefused."""
    view = view_of(worker)
    found = judge(view, demand, _room(view, ports, now))
    if found:
        text = "; ".join(f"{reason.sub}: needs {reason.need}, has {reason.have}" for reason in found)
        raise PlacementRefused(found[0].label, f"worker {worker.name} does not take the session: {text}")
    return view


def _room(view: PlacementWorker, ports: PortRange, now: datetime) -> Room | None:
    room = view.room
    return None if room is None else WorkerRoom(view, vector(room), ports, now).room()


def find_claim(worker: Worker, session_id: str, attempt: int | None = None) -> Claim | None:
    """The claim of this attempt; without an attempt the newest of the session."""
    found = [
        each
        for each in worker.claims
        if each.session_id == session_id and (attempt is None or each.attempt == attempt)
    ]
    return max(found, key=lambda each: each.attempt, default=None)


def release(worker: Worker, session_id: str, attempt: int, *, now: datetime) -> Worker:
    """Remove a claim. The end of the last one of a drain wakes the controller, which waits for it."""
    gone = find_claim(worker, session_id, attempt)
    if gone is None:
        return worker
    left = replace(
        worker,
        claims=tuple(each for each in worker.claims if each is not gone),
        freed_ports={
            **{port: at for port, at in worker.freed_ports.items() if now - at < COOLING},
            **dict.fromkeys(gone.ports.values(), now),
        },
        updated_at=now,
    )
    is_drained = worker.status is DRAINING and bool(worker.sessions) and not left.sessions
    return replace(left, generation=worker.generation + is_drained)


def mark_import(worker: Worker, session_id: str, attempt: int, generation: int, *, now: datetime) -> Worker:
    """Record that the claim's session may own a lab from now on. Raises Conflict without the claim."""
    if find_claim(worker, session_id, attempt) is None:
        raise Conflict(f"claim_lost: worker {worker.name} does not hold the claim; unschedule the session")
    worker = hold_again(worker, session_id, attempt, now=now)
    return expect_lab(worker, session_id, attempt, lab_generation=generation, now=now)


def expect_lab(
    worker: Worker, session_id: str, attempt: int, *, lab_generation: int, now: datetime
) -> Worker:
    """Record, before its import, that a lab may exist: the claim then outlasts a stop of the worker."""
    return _change_claim(worker, session_id, attempt, now, lab_generation=lab_generation)


def retain(worker: Worker, session_id: str, attempt: int, *, lab_generation: int, now: datetime) -> Worker:
    """Keep the claim of a session that moves on, until its lab is proven gone."""
    return _change_claim(worker, session_id, attempt, now, is_retained=True, lab_generation=lab_generation)


def let_go(worker: Worker, session_id: str, attempt: int, *, generation: int, now: datetime) -> Worker:
    """Release the claim of a session that moves on; retain it if an import was intended, or is just now."""
    held = find_claim(worker, session_id, attempt)
    newest = max(generation, held.lab_generation if held is not None else 0)
    if newest == 0:
        return release(worker, session_id, attempt, now=now)
    return retain(worker, session_id, attempt, lab_generation=newest, now=now)


def let_go_of_stale(worker: Worker, session_id: str, attempt: int, *, now: datetime) -> Worker:
    """Release a claim that no session uses any more; retain it if a lab may exist for it."""
    return let_go(worker, session_id, attempt, generation=0, now=now)


def hold_again(worker: Worker, session_id: str, attempt: int, *, now: datetime) -> Worker:
    """Undo a retention whose session did not move on after all."""
    return _change_claim(worker, session_id, attempt, now, is_retained=False)


def note_missing_labs(worker: Worker, missing: Collection[tuple[str, int]], *, now: datetime) -> Worker:
    """Release the retained claims, by session and attempt, of which full listings show no lab on the worker.

    An import without an answer may still make one, so a later listing has to confirm the first.
    """
    for each in worker.claims:
        if not each.is_retained:
            continue
        since = each.lab_missing_since
        is_missing = (each.session_id, each.attempt) in missing
        if is_missing and since is not None and now - since >= LEAKED_FOR:
            worker = release(worker, each.session_id, each.attempt, now=now)
        else:
            noted = (since or now) if is_missing else None
            worker = _change_claim(worker, each.session_id, each.attempt, now, lab_missing_since=noted)
    return worker


def release_retained(worker: Worker, session_id: str, *, generation: int, now: datetime) -> Worker:
    """Release the retained claims of a session whose labs up to this import are proven gone."""
    for each in worker.claims:
        if each.is_retained and each.session_id == session_id and each.lab_generation <= generation:
            worker = release(worker, session_id, each.attempt, now=now)
    return worker


def move_end(
    worker: Worker, session_id: str, attempt: int, ends_at: datetime | None, *, now: datetime
) -> Worker:
    """Record the new end of a session that was extended."""
    return _change_claim(worker, session_id, attempt, now, ends_at=ends_at)


def _change_claim(worker: Worker, session_id: str, attempt: int, now: datetime, **changes: Any) -> Worker:
    claims = tuple(
        replace(each, **changes) if (each.session_id, each.attempt) == (session_id, attempt) else each
        for each in worker.claims
    )
    return worker if claims == worker.claims else replace(worker, claims=claims, updated_at=now)


def nominate_worker(worker: Worker, expected: Mapping[str, datetime], dropped: frozenset[str]) -> Worker:
    """Record the sessions that count on this worker, and forget those that do so no longer."""
    kept = {session: at for session, at in worker.nominations.items() if session not in dropped}
    return replace(worker, nominations={**kept, **expected})


def _without(nominations: Mapping[str, datetime], session_id: str) -> dict[str, datetime]:
    return {session: at for session, at in nominations.items() if session != session_id}
