"""The gate through which every change of a lab passes. No other code changes one.

A change is made only while this instance leads, only for a session that is as it was when the change was
decided, and only to a lab that is this session's.
"""

from collections.abc import Awaitable, Callable, Sequence

from lcm.cml.sessions import CmlServer
from lcm.domain.errors import Conflict
from lcm.domain.lablet.instantiation import owner_of
from lcm.domain.lablet.marker import SeenLab, is_ours
from lcm.domain.lablet.session import LabletSession
from lcm.lablet_controller.ports import CmlLabs, ControlPlane, ImportedLab


class LabGate:
    """Changes the labs of sessions."""

    def __init__(
        self,
        labs: CmlLabs,
        control_plane: ControlPlane,
        fleet_id: Callable[[], Awaitable[str]],
        check_leadership: Callable[[], None],
    ) -> None:
        self._labs = labs
        self._control_plane = control_plane
        self._fleet_id = fleet_id
        self._check_leadership = check_leadership

    async def import_lab(self, session: LabletSession, server: CmlServer, topology: str) -> ImportedLab:
        await self._verify(session)
        lab = session.lab
        if lab is None or lab.lab_id is not None or lab.instance_id != server.instance_id:
            raise Conflict("no import on this instance is intended")
        self._check_leadership()
        return await self._labs.import_lab(server, topology, title=lab.title)

    async def set_node_tags(
        self, session: LabletSession, server: CmlServer, node_id: str, tags: Sequence[str]
    ) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.set_node_tags(server, lab_id, node_id, tags)

    async def start(self, session: LabletSession, server: CmlServer) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.start_lab(server, lab_id)

    async def extract_configuration(self, session: LabletSession, server: CmlServer, node_id: str) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.extract_configuration(server, lab_id, node_id)

    async def stop(self, session: LabletSession, server: CmlServer) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.stop_lab(server, lab_id)

    async def stop_node(self, session: LabletSession, server: CmlServer, node_id: str) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.stop_node(server, lab_id, node_id)

    async def wipe(self, session: LabletSession, server: CmlServer) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.wipe_lab(server, lab_id)

    async def delete(self, session: LabletSession, server: CmlServer) -> None:
        lab_id = await self._pass(session, server)
        await self._labs.delete_lab(server, lab_id)

    async def _pass(self, session: LabletSession, server: CmlServer) -> str:
        """Return the id of the lab that may be changed now."""
        current = await self._verify(session)
        owner = owner_of(current, await self._fleet_id())
        lab_id = session.lab.lab_id if session.lab is not None else None
        if owner is None or lab_id is None:
            raise Conflict("the session has no lab")
        if owner.recorded_id is None or not is_ours(SeenLab(lab_id, "", ""), owner, server.instance_id):
            raise Conflict(f"lab {lab_id} is not this session's")
        self._check_leadership()
        return lab_id

    async def _verify(self, session: LabletSession) -> LabletSession:
        """The session as it is recorded now. Raises Conflict if something else was decided meanwhile."""
        current = await self._control_plane.get_session(session.id)
        if _decided_on(current) != _decided_on(session):
            raise Conflict(
                f"the session is {current.status} at generation {current.generation}; decide again"
            )
        return current


def _decided_on(session: LabletSession) -> tuple[object, ...]:
    """All that makes a change of a lab right; progress does not."""
    lab = session.lab
    recorded = (lab.generation, lab.instance_id, lab.lab_id) if lab is not None else ()
    return (session.status, session.generation, session.attempt, session.worker_id, *recorded)
