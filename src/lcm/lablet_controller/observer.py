"""What CML shows of a session's lab: the recorded one, or the one that has the marker of the session."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.domain.errors import CredentialsRefused, LabRefused, NotFound, TransientError, Unreachable
from lcm.domain.lablet.instantiation import owner_of
from lcm.domain.lablet.marker import LabOwner, Marker, SeenLab, is_ours, marker_of
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import INSTANTIATING, RUNNING
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.lablet_controller.decisions import LabView
from lcm.lablet_controller.ports import CmlLab, CmlLabs, ControlPlane

_LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_Import = tuple[str, int]
"""A session, and which of its imports."""
_Expected = Mapping[str, tuple[str, ...]]


class LabObserver:
    """Reads only. What it remembers is dropped with every leadership."""

    def __init__(
        self, labs: CmlLabs, control_plane: ControlPlane, clock: Clock, *, lands_within_seconds: float
    ) -> None:
        self._labs = labs
        self._control_plane = control_plane
        self._clock = clock
        self._lands_within = lands_within_seconds
        self._fleet_id: str | None = None
        self.reset()

    def reset(self) -> None:
        """Another leader may have sent an import a moment ago."""
        self._since = self._clock.monotonic()
        self._sent: dict[_Import, float] = {}
        self._expected: dict[_Import, _Expected] = {}
        self._boots: dict[str, Mapping[str, int]] = {}
        self._foreign: dict[tuple[str, str], Marker | None] = {}

    async def fleet_id(self) -> str:
        """The id in the markers of this fleet's labs; it never changes."""
        if self._fleet_id is None:
            self._fleet_id = await self._control_plane.get_fleet_id()
        return self._fleet_id

    def forget(self, session_id: str) -> None:
        for kept in (self._sent, self._expected):
            for each in [key for key in kept if key[0] == session_id]:
                del kept[each]

    def on_intent(self, session: LabletSession) -> None:
        """Nothing was sent for a new intent yet."""
        self._sent[_import_of(session)] = float("-inf")

    def on_topology(self, session: LabletSession, topology: str) -> None:
        """This is what is imported now."""
        self._expected[_import_of(session)] = _tags_by_label(topology)

    def on_import_without_answer(self, session: LabletSession) -> None:
        """The lab may appear for a while."""
        self._sent[_import_of(session)] = self._clock.monotonic()

    async def observe(self, session: LabletSession, server: CmlServer) -> Observation[LabView]:
        """The lab of the session. Unknown may pass; only Absent proves that there is none.

        An end or a deadline is decided on whatever CML answers, so a call that fails is Unknown too.
        """
        try:
            return await self._observe(session, server)
        except CredentialsRefused:
            raise
        except (LabRefused, NotFound, TransientError) as error:
            return Unknown(str(error), is_failure=True)

    async def _observe(self, session: LabletSession, server: CmlServer) -> Observation[LabView]:
        lab = session.lab
        if lab is None:
            return Unknown("no lab is intended")
        if lab.lab_id is None:
            return await self._search(session, server)
        if session.status is RUNNING:
            seen = await self._labs.get_lab(server, lab.lab_id)
            if not isinstance(seen, Known):
                return seen
            return Known(LabView(lab.lab_id, state=seen.value.state), seen.taken_at)
        try:
            return await self._view(session, server, lab.lab_id)
        except NotFound as error:
            seen = await self._labs.get_lab(server, lab.lab_id)  # only this proves that the lab is gone
            return Unknown(str(error), is_failure=True) if isinstance(seen, Known) else seen

    async def download(self, session: LabletSession, server: CmlServer) -> str:
        """The topology of the recorded lab, with the configurations that were extracted."""
        assert session.lab is not None
        assert session.lab.lab_id is not None
        return await self._labs.download_lab(server, session.lab.lab_id)

    async def _view(self, session: LabletSession, server: CmlServer, lab_id: str) -> Observation[LabView]:
        """Raises NotFound if CML answers that it has no such lab."""
        at = self._clock.now()
        is_new = session.status is INSTANTIATING
        expected = await self._expect(session) if is_new else None
        boots = await self._boot_seconds(server) if is_new else {}
        # Asked first: a node that leaves its state afterwards is seen by the next call.
        has_converged = await self._labs.has_converged(server, lab_id) if is_new else False
        nodes = tuple(await self._labs.nodes(server, lab_id))
        slowest = max((boots.get(node.node_definition, 0) for node in nodes), default=0)
        view = LabView(
            lab_id, nodes=nodes, has_converged=has_converged, expected=expected, boot_seconds=slowest
        )
        return Known(view, at)

    async def _boot_seconds(self, server: CmlServer) -> Mapping[str, int]:
        """How long CML waits for nodes, by definition; nothing if it does not say now."""
        instance = str(server.instance_id)
        if instance not in self._boots:
            try:
                definitions = await self._labs.node_definitions(server)
            except (LabRefused, NotFound, Unreachable):
                return {}
            self._boots[instance] = {each.id: each.boot_seconds or 0 for each in definitions}
        return self._boots[instance]

    async def _expect(self, session: LabletSession) -> _Expected:
        key = _import_of(session)
        if key not in self._expected:
            self.on_topology(session, await self._control_plane.get_topology(session.id))
        return self._expected[key]

    async def _search(self, session: LabletSession, server: CmlServer) -> Observation[LabView]:
        """The oldest lab with the marker; Absent only if every lab was seen and none can come any more."""
        owner = owner_of(session, await self.fleet_id())
        assert owner is not None
        listing = await self._labs.list_labs(server)
        found: list[CmlLab] = []
        for lab_id in listing.lab_ids:
            if not self._may_be(owner, server, lab_id):
                continue
            seen = await self._labs.get_lab(server, lab_id)
            if isinstance(seen, Unknown):
                return seen
            if isinstance(seen, Known) and self._is_ours(seen.value, owner, server):
                found.append(seen.value)
        if found:
            oldest = min(found, key=lambda lab: (lab.created or listing.taken_at, lab.id))
            return Known(LabView(oldest.id), listing.taken_at)
        if not listing.is_complete:
            return Unknown("LCM's account on CML is no administrator: labs may be missing in its listing")
        sent_at = self._sent.get(_import_of(session), self._since)
        if self._clock.monotonic() < sent_at + self._lands_within:
            return Unknown("an import without an answer may still make a lab")
        return Absent("no lab has the marker of the session")

    def _may_be(self, owner: LabOwner, server: CmlServer, lab_id: str) -> bool:
        """Whether a lab that was read before is worth another read: markers are not moved to other labs."""
        key = (str(server.instance_id), lab_id)
        return key not in self._foreign or self._foreign[key] == owner.marker

    def _is_ours(self, lab: CmlLab, owner: LabOwner, server: CmlServer) -> bool:
        seen = SeenLab(lab.id, lab.title, lab.notes)
        self._foreign[(str(server.instance_id), lab.id)] = marker_of(seen)
        return is_ours(seen, owner, server.instance_id)


def _import_of(session: LabletSession) -> _Import:
    return session.id, session.lab.generation if session.lab is not None else 0


def _tags_by_label(topology: str) -> dict[str, tuple[str, ...]]:
    text = _LOADER(topology).get_single_data()
    return {node["label"]: tuple(node.get("tags") or ()) for node in text["nodes"]}
