"""A controller that won an election claims its epoch.

The epoch is the version of the service's leadership document, so a claim is a compare-and-set and
every write fenced by an older epoch is refused from then on.
"""

import msgspec

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.port import Document, Fence, VersionConflict
from lcm.domain.errors import Conflict, Fenced
from lcm.rest.schemas import LeadershipClaim, LeadershipGrant

KIND = "leadership"
REMEMBERED_CLUSTERS = 100
MAX_ATTEMPTS = 8


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads a service, by which election, and which coordination stores came before."""

    cluster_id: str
    revision: int
    instance_id: str
    earlier_clusters: tuple[str, ...] = ()


async def claim_leadership(control_plane: ControlPlane, claim: LeadershipClaim) -> LeadershipGrant:
    """The same claim again gets the same epoch; an older election than the known one is refused.

    A coordination store never seen before starts above the stored epoch: a wiped etcd or a restarted
    in-process store cannot lock out a rightful leader.
    """
    for _ in range(MAX_ATTEMPTS):
        document = await control_plane.store.get(KIND, claim.service)
        known = msgspec.json.decode(document.body, type=Leadership) if document else None
        version = document.version if document else 0
        if known is not None:
            if claim.cluster_id in known.earlier_clusters:
                raise Fenced("this coordination store was replaced by another one since")
            if claim.cluster_id == known.cluster_id:
                if claim.revision < known.revision:
                    raise Fenced("a later election was won by another instance")
                if claim.revision == known.revision:
                    return LeadershipGrant(epoch=version)
        claimed = Document(KIND, claim.service, version + 1, msgspec.json.encode(_next(known, claim)))
        try:
            await (control_plane.store.replace(claimed) if known else control_plane.store.insert(claimed))
        except VersionConflict:
            continue
        return LeadershipGrant(epoch=version + 1)
    raise Conflict("several instances claim the lead at once; try again")


def _next(known: Leadership | None, claim: LeadershipClaim) -> Leadership:
    earlier = known.earlier_clusters if known else ()
    if known is not None and known.cluster_id != claim.cluster_id:
        earlier = (*earlier, known.cluster_id)[-REMEMBERED_CLUSTERS:]
    return Leadership(
        cluster_id=claim.cluster_id,
        revision=claim.revision,
        instance_id=claim.instance_id,
        earlier_clusters=earlier,
    )


def fence_for(service: str, epoch: int) -> Fence:
    """Lets writes through only while this epoch is the newest."""
    return Fence(KIND, service, epoch)
