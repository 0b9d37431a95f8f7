"""The lablet controller moves a session to its next status."""

from lcm.control_plane.commands.lablets.end_session import finish_ending
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.lablet.instantiation import is_repeated, move_on
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import STOPPING
from lcm.rest.lablet_reports import SessionMove


async def move_session(
    records: Records, policies: Policies, session_id: str, move: SessionMove, *, fence: Fence
) -> LabletSession:
    """Carry out one row of the table; a repeated report changes nothing.

    A session without a lab ends at once; after a crash the next pass over the windows ends it.
    """
    now = records.clock.now()

    def decide(current: LabletSession) -> LabletSession:
        if is_repeated(current, move.source, move.target):
            return current
        if (current.status, current.generation) != (move.source, move.generation):
            raise Conflict(
                f"the session is {current.status} at generation {current.generation}; decide on that one"
            )
        return move_on(
            current,
            move.target,
            reason=move.reason,
            end_reason=move.end_reason,
            now=now,
            policy=policies.times,
        )

    moved = await records.sessions.change(session_id, decide, fence=fence)
    return await finish_ending(records, moved) if moved.status is STOPPING else moved
