"""The gate through which every change of a lab passes. No other code changes one.

A change is made only while this instance leads, only for a session that is as it was when the change was
decided, and only to a lab that is this session's. A lab of no session is changed only while a person's
request for it is recorded, or while it is proven leaked: by its marker, read from CML right before, and by
the present record of the session that the marker names. The configurations of its nodes are extracted while
the stop of its worker waits for that.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lcm.cml.sessions import CmlServer
from lcm.domain.errors import Conflict, Unreachable
from lcm.domain.lablet.instantiation import owner_of
from lcm.domain.lablet.listed_lab import (
    KEPT_BY_PEOPLE,
    LabAction,
    LabKind,
    LabMark,
    LabRequest,
    LeakReason,
)
from lcm.domain.lablet.marker import SeenLab, is_ours, marker_of
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import READY, RUNNING
from lcm.domain.observation import Known
from lcm.domain.telemetry import LabRecord
from lcm.lablet_controller.ports import CmlLab, CmlLabs, ControlPlane, ElementState, ImportedLab
from lcm.rest.lab_reports import ConfigsWanted

MAX_TITLE: Final = 200
"""Characters of a title that are recorded."""


class RequestRefused(Conflict):
    """What a person requested of a lab is not possible any more."""


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

    # Labs of which something is requested, whosesoever they are.

    async def start_unowned(self, lab: LabRecord, server: CmlServer) -> None:
        await self._pass_requested(lab, server)
        await self._labs.start_lab(server, lab.lab_id)

    async def stop_unowned(self, lab: LabRecord, server: CmlServer) -> None:
        await self._pass_requested(lab, server)
        await self._labs.stop_lab(server, lab.lab_id)

    async def stop_node_unowned(self, lab: LabRecord, server: CmlServer, node_id: str) -> None:
        await self._pass_requested(lab, server)
        await self._labs.stop_node(server, lab.lab_id, node_id)

    async def wipe_unowned(self, lab: LabRecord, server: CmlServer) -> None:
        await self._pass_requested(lab, server)
        await self._labs.wipe_lab(server, lab.lab_id)

    async def delete_unowned(self, lab: LabRecord, server: CmlServer) -> None:
        await self._pass_requested(lab, server)
        await self._labs.delete_lab(server, lab.lab_id)

    async def extract_before_stop(
        self, request: ConfigsWanted, server: CmlServer, lab_id: str, node_id: str
    ) -> None:
        """Copy the configuration of a node into its lab, whosesoever it is, while the stop waits for it."""
        worker = await self._control_plane.fetch_single_resource(request.worker_id)
        waits = worker.pause.extraction if worker is not None and worker.pause.is_unfinished else None
        if waits is None or waits.asked_at != request.asked_at or waits.ended_at is not None:
            raise Conflict(f"no stop of worker {request.worker_id} waits for configurations")
        self._check_leadership()
        await self._labs.extract_configuration(server, lab_id, node_id)

    async def _pass_requested(self, lab: LabRecord, server: CmlServer) -> None:
        """Return if the request may be carried out now. CML is read first, the records after it."""
        seen = await self._labs.get_lab(server, lab.lab_id)
        if not isinstance(seen, Known):
            raise Unreachable(f"CML at {server.host} does not show lab {lab.lab_id} now")
        marker = marker_of(SeenLab(lab.lab_id, seen.value.title, seen.value.notes))
        mark = LabMark.of(marker) if marker is not None else None
        current = await self._control_plane.get_lab_record(lab.worker_id, lab.lab_id)
        request = current.request
        if request is None or request.is_over or _asked(current) != _asked(lab):
            raise Conflict(f"what is requested of lab {lab.lab_id} has changed")
        if mark != current.mark:
            raise Conflict(f"the marker of lab {lab.lab_id} is not as it was listed; list the labs again")
        if request.leak is not None:
            self._verify_leak(current, request, seen.value, await self._fleet_id())
        else:
            await self._verify_of_person(current, request, seen.value)
        self._check_leadership()

    def _verify_leak(self, lab: LabRecord, request: LabRequest, seen: CmlLab, fleet_id: str) -> None:
        """Raise Conflict unless the lab is this fleet's and leaked for the reason of the request."""
        if lab.mark is None or lab.mark.fleet_id != fleet_id:
            raise Conflict(f"lab {lab.lab_id} has not the marker of this fleet")
        if lab.kind is not LabKind.LEAKED or lab.leak is not request.leak:
            raise Conflict(f"lab {lab.lab_id} is not leaked as it was: {lab.leak or lab.kind}")
        if lab.leak is LeakReason.DUPLICATE and seen.state is not ElementState.DEFINED_ON_CORE:
            raise Conflict(f"lab {lab.lab_id} was started; it is left to people")

    async def _verify_of_person(self, lab: LabRecord, request: LabRequest, seen: CmlLab) -> None:
        """Raise RequestRefused if the request is not possible any more; it has to be made anew."""
        is_removal = request.action is LabAction.REMOVE
        if lab.kind is LabKind.SESSION and lab.session_id is not None:
            if is_removal:
                raise RequestRefused(f"the lab belongs to lablet session {lab.session_id}; end the session")
            session = await self._control_plane.get_session(lab.session_id)
            if session.status not in (READY, RUNNING):
                raise RequestRefused(f"its lablet session is {session.status}; LCM changes the lab itself")
        if is_removal and lab.kind in KEPT_BY_PEOPLE and seen.title[:MAX_TITLE] != request.title:
            raise RequestRefused("the lab has another title by now; send that one to remove it")


def _asked(lab: LabRecord) -> tuple[object, ...]:
    request = lab.request
    return (request.action, request.asked_at, request.leak) if request is not None else ()


def _decided_on(session: LabletSession) -> tuple[object, ...]:
    """All that makes a change of a lab right; progress does not."""
    lab = session.lab
    recorded = (lab.generation, lab.instance_id, lab.lab_id) if lab is not None else ()
    return (session.status, session.generation, session.attempt, session.worker_id, *recorded)
