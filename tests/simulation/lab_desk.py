"""People who book sessions whose labs run, and what they do to the labs on CML's own pages."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.lablets.abandon_session import abandon_session
from lcm.control_plane.records.definitions import KIND, StoredDefinition
from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lifecycle import DesiredStatus
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.topology import import_file, read_file
from simulation.desk import TODAY, Desk
from simulation.story import PATIENCE_SECONDS, Story, TooLate
from simulation.world.live_fleet import SimulatedCmlServer
from support.lablet_bench import LAB

PASSWORD: Final = "canary-of-the-nodes-of-a-lab"
NODES: Final = 2
"""Of the topology of every definition here."""
TEMPLATE: Final = "medium"
"""It has room for two labs."""
PERSON: Final = "a-person"


class LabDesk(Desk):
    """A teacher with definitions whose topologies are imported, and a person at every CML server."""

    def __init__(self, story: Story) -> None:
        super().__init__(story)
        assert story.world.live is not None
        self.fleet = story.world.live
        self.expectations.append(self._lab_left)

    def _lab_left(self) -> str | None:
        """What is missing as long as something of an ended session is left, where LCM can see it."""
        left = [lab.title for _, lab in self.fleet.left_behind()]
        there = {lab.id for _, lab in self.fleet.labs()}
        stale = [
            lab_id
            for worker_id, lab_id in self.world.disk.recorded_labs()
            if lab_id not in there and self.fleet.server_of(worker_id) is not None
        ]
        claims = [
            claim.session_id
            for worker in self.world.disk.peek_all()
            if self.fleet.server_of(worker.id) is not None
            for claim in worker.claims
            if self.session(claim.session_id).is_ended
        ]
        if left or stale or claims:
            return f"left are labs {left}, records of {stale}, claims of {claims}"
        unlisted = [
            worker.name
            for worker in self.world.disk.peek_all()
            if (server := self.fleet.server_of(worker.id)) is not None and server.removed_at is not None
            if worker.cml.labs.listed_at is None or worker.cml.labs.listed_at <= server.removed_at
        ]
        return f"the labs of {unlisted} were not listed since one was removed" if unlisted else None

    async def end_all(self) -> None:
        """The labs on stopped workers are removed when they run again."""
        await super().end_all()
        for worker in self.world.disk.peek_all():
            if worker.desired_status is DesiredStatus.STOPPED:
                await self.act(worker.id, "start")

    async def define(self, name: str, *, has_port: bool = True, **options: Any) -> LabletDefinition:
        """A host at a switch; its login is known to those who may have it."""
        access = {"username": "cisco", "password": PASSWORD}
        text = LAB if has_port else LAB.replace("'serial:5001'", "")
        body = {"name": name, "lab_yaml": text, "options": options, "access": access}
        status, answer = await self._ask("POST", "/api/lablet-definitions", body, key=f"define {name}")
        assert status == 201, answer
        stored = await self.world.disk.get(KIND, answer["id"])
        assert stored is not None
        definition = msgspec.json.decode(stored.body, type=StoredDefinition).definition
        TODAY[name] = definition
        return definition

    async def abandon(self, session_id: str) -> None:
        """Give up the removal of its lab, as an admin."""

        async def give_up(plane: ControlPlane) -> list[LabletSession]:
            return [await abandon_session(plane.records, session_id, by="admin", reason="stuck")]

        await self._ask_plane("abandon session", session_id, give_up)

    # What is on the servers.

    def lab_of(self, session_id: str) -> Lab:
        """The lab that the session has recorded, as it really is."""
        lab = self.find_lab(session_id)
        assert lab is not None, f"session {session_id} has no lab"
        return lab

    def find_lab(self, session_id: str) -> Lab | None:
        recorded = self.session(session_id).lab
        if recorded is None or recorded.lab_id is None:
            return None
        return self.fleet.lab(recorded.lab_id, recorded.instance_id)

    def server_of(self, session_id: str) -> SimulatedCmlServer | None:
        """The server that the session is placed on, if it is up."""
        worker_id = self.session(session_id).worker_id
        return self.fleet.server_of(worker_id) if worker_id is not None else None

    async def until_no_lab(self, session_id: str) -> None:
        """Wait until no lab that was imported for the session exists."""
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while any(self.fleet.session_of(lab.id) == session_id for _, lab in self.fleet.labs()):
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"a lab of {session_id} is left")
            await self.pause(5.0)

    async def until_gone(self, lab: Lab) -> None:
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while any(each is lab for _, each in self.fleet.labs()):
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"lab {lab.title} is left")
            await self.pause(5.0)

    # What people do on CML's own pages. What CML refuses them they do not do.

    def make_own_lab(
        self,
        server: SimulatedCmlServer,
        title: str,
        *,
        notes: str = "",
        tag: str = "",
        is_started: bool = True,
    ) -> Lab:
        """A lab that is no business of LCM's."""
        text = LAB.replace("'serial:5001'", f"'{tag}'" if tag else "")
        labs, now = server.cml.labs, self._moment
        lab = import_file(labs, read_file(text.encode()), now, owner_id=ADMIN_ID, title=title)
        lab.notes = notes
        if is_started:
            with suppress(Refused):
                labs.start(lab, now, PERSON)
        self.fleet.on_person(lab)
        return lab

    async def a_server(self, worker_id: str) -> SimulatedCmlServer:
        """That of a worker, once its CML has booted."""
        while (server := self.fleet.server_of(worker_id)) is None:
            await self.pause(1.0)
        return server

    def copy(self, session_id: str, title: str = "") -> Lab | None:
        """A lab with the notes of the session's. It has its title too and is started unless another is given:
        at rest it looks like what an import without an answer made."""
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is None or lab is None:
            return None
        return self.make_own_lab(server, title or lab.title, notes=lab.notes, is_started=not title)

    def start_lab(self, session_id: str) -> None:
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is not None and lab is not None:
            with suppress(Refused):
                server.cml.labs.start(lab, self._moment, PERSON)
            self.fleet.on_person(lab)

    def stop_lab(self, session_id: str) -> None:
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is not None and lab is not None:
            with suppress(Refused):
                server.cml.labs.stop(lab, self._moment, PERSON)
            self.fleet.on_person(lab)

    async def delete_lab(self, session_id: str) -> None:
        """Stop, wipe and delete it, as CML demands."""
        self.stop_lab(session_id)
        await self.pause(5.0)
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is None or lab is None or any(node.is_running for node in lab.nodes.values()):
            return
        try:
            server.cml.labs.wipe(lab, self._moment, PERSON)
        except Refused:
            return
        self.fleet.on_person(lab)
        server.cml.labs.discard(lab)
        server.removed_at = self.world.clock.now()
        self.fleet.on_labs_changed()

    def rename(self, session_id: str, **changes: str) -> None:
        """Give the lab another title or other notes."""
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is not None and lab is not None:
            server.cml.labs.modify(lab, self._moment, **changes)
            self.fleet.on_person(lab)

    def retag(self, session_id: str, *tags: str) -> None:
        server, lab = self.server_of(session_id), self.find_lab(session_id)
        if server is not None and lab is not None:
            node = next(iter(lab.nodes.values()))
            server.cml.labs.change_node(node, self._moment, tags=list(tags))
            self.fleet.on_person(lab)

    async def remove_foreign(self, server: SimulatedCmlServer, lab: Lab) -> None:
        """Request its removal of LCM as soon as that knows the lab; only who types its title may."""
        worker_id = self.fleet.worker_at(server.instance.public_ip or "")
        path = f"/api/workers/{worker_id}/labs/{lab.id}/remove"
        self.fleet.removable.add(lab.id)
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while self.world.clock.monotonic() < ends:
            status, _ = await self._ask("POST", path, {"title": lab.title})
            if status == 202:
                return
            await self.pause(20.0)
        raise TooLate(f"nobody may remove {lab.title}")

    async def adopt_lab(self, server: SimulatedCmlServer, lab: Lab) -> None:
        """Keep a lab of no session, as soon as LCM has listed it as one."""
        await self._until_recorded(server, lab, "adopt", is_adopted=True)

    async def disown_lab(self, server: SimulatedCmlServer, lab: Lab) -> None:
        self.fleet.disowned.add(lab.id)
        await self._until_recorded(server, lab, "disown", is_adopted=False)

    async def _until_recorded(
        self, server: SimulatedCmlServer, lab: Lab, action: str, *, is_adopted: bool
    ) -> None:
        """Request it until the record says so: an answer may be lost, or LCM may not know the lab yet."""
        worker_id = self.fleet.worker_at(server.instance.public_ip or "")
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while self.fleet.is_adopted(server, lab) is not is_adopted:
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"nobody may {action} {lab.title}")
            await self._ask("POST", f"/api/workers/{worker_id}/labs/{lab.id}/{action}", None)
            await self.pause(20.0)

    @property
    def _moment(self) -> float:
        return self.world.clock.now().timestamp()
