"""A controller that won an election claims an epoch.

The epoch is the version of the service's leadership document, so a claim is a compare-and-set and
every write fenced by an older epoch is refused from then on.
"""

from dataclasses import replace
from datetime import datetime

import msgspec

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.epochs import Leadership
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import GUARD_KIND, Document, Fence, VersionConflict
from lcm.core.election import ALONE
from lcm.domain.errors import Conflict, Fenced
from lcm.domain.idle import ControllerTerms
from lcm.rest.schemas import WORKER_CONTROLLER, LeadershipClaim, LeadershipGrant

REMEMBERED_CLUSTERS = 100
MAX_ATTEMPTS = 8
ONLY_ONE = "only one controller may run without etcd; stop one, or set ETCD_HOST or ETCD_ENDPOINTS for both"


async def claim_leadership(
    records: Records, claim: LeadershipClaim, own_terms: ControllerTerms | None = None
) -> LeadershipGrant:
    """Grant an epoch: the same claim gets the same one again, an election that is not newer is refused.

    Elections are compared within one coordination store only. Another store starts above the stored
    epoch: a wiped etcd or a restarted in-process store cannot lock out a rightful leader, and a claim of
    a lost store that arrives late cannot either, because the next election of the present one is newer.
    """
    conflicts = own_terms.conflicts(claim.terms) if own_terms and claim.terms else []
    if conflicts:
        raise Conflict(f"{'; '.join(conflicts)}; set it at the worker controller only, or alike at both")
    for _ in range(MAX_ATTEMPTS):
        document = await records.store.get(GUARD_KIND, claim.service)
        known = msgspec.json.decode(document.body, type=Leadership) if document else None
        version = document.version if document else 0
        if known is not None and _is_granted(known, claim):
            return _granted(records, claim, version)
        if known is not None:
            _require_newer(records, known, claim)
        claimed = Document(
            GUARD_KIND,
            claim.service,
            version + 1,
            msgspec.json.encode(_next(known, claim, records.clock.now())),
        )
        records.epochs.invalidate(fence_for(claim.service, version))
        try:
            await (records.store.replace(claimed) if known else records.store.insert(claimed))
        except VersionConflict:
            continue
        return _granted(records, claim, version + 1)
    raise Conflict("several instances claim the lead at once; try again")


def _granted(records: Records, claim: LeadershipClaim, epoch: int) -> LeadershipGrant:
    records.epochs.granted(fence_for(claim.service, epoch))
    records.lone_leaders.on_claim(claim.service)
    return LeadershipGrant(epoch=epoch, answered_at=records.clock.now())


def _is_granted(known: Leadership, claim: LeadershipClaim) -> bool:
    """Whether the newest epoch was granted to this very claim."""
    is_holder = (known.cluster_id, known.instance_id) == (claim.cluster_id, claim.instance_id)
    return is_holder and claim.revision == known.newest_elections.get(claim.cluster_id, 0)


def _require_newer(records: Records, known: Leadership, claim: LeadershipClaim) -> None:
    """Raise Fenced for an election that is not newer; Conflict while another leads without etcd as well.

    Without etcd there is no election to compare: the first keeps the lead until it is silent.
    """
    is_alone = claim.cluster_id.startswith(ALONE)
    if is_alone and known.cluster_id.startswith(ALONE):
        if records.lone_leaders.is_heard(claim.service):
            raise Conflict(f"{known.instance_id} leads: {ONLY_ONE}")
    elif claim.revision <= known.newest_elections.get(claim.cluster_id, 0):
        raise Fenced(
            f"{known.instance_id} leads since: {ONLY_ONE}"
            if is_alone
            else "another instance won a later election; campaign again"
        )


def _next(known: Leadership | None, claim: LeadershipClaim, now: datetime) -> Leadership:
    elections = dict(known.newest_elections) if known else {}
    elections.pop(claim.cluster_id, None)
    elections[claim.cluster_id] = claim.revision
    newest_last = list(elections.items())[-REMEMBERED_CLUSTERS:]
    return Leadership(
        cluster_id=claim.cluster_id,
        instance_id=claim.instance_id,
        newest_elections=dict(newest_last),
        terms=claim.terms,
        since=now,
    )


async def with_terms_of_the_leader(records: Records, policies: Policies) -> Policies:
    """Return the policies with what the leading worker controller stated, to whichever control plane."""
    document = await records.store.get(GUARD_KIND, WORKER_CONTROLLER)
    terms = msgspec.json.decode(document.body, type=Leadership).terms if document else None
    return policies if terms is None else replace(policies, idle=terms.applied_to(policies.idle))


def fence_for(service: str, epoch: int) -> Fence:
    """Return the fence that admits writes only while this epoch is the newest."""
    return Fence(GUARD_KIND, service, epoch)
