"""People who book lablet sessions, end them and change their minds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.lablets.batches import create_batch
from lcm.control_plane.commands.lablets.create_session import create_session
from lcm.control_plane.commands.lablets.end_session import end_session
from lcm.control_plane.commands.lablets.extend_session import extend_session
from lcm.control_plane.records.preconditions import keyed_request
from lcm.control_plane.store.port import StoreUnavailable
from lcm.domain.capacity import Capacity
from lcm.domain.errors import LcmError, RequestError, Unreachable
from lcm.domain.lablet import admission
from lcm.domain.lablet.definition import Demand, LabletDefinition
from lcm.domain.lablet.ports import PortKind, PortSpec
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus, seat_id
from lcm.domain.lablet.states import EndReason, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lifecycle import DRAINING
from simulation.classroom import Classroom
from simulation.story import PATIENCE_SECONDS, RunEnded, Story, TooLate
from simulation.world.calls import Violation
from simulation.world.ports import SimulatedPort
from simulation.world.processes import PlaneProcess

T = TypeVar("T")

MINUTE = timedelta(minutes=1)
SSH = PortSpec(name="r1_ssh", node="r1", kind=PortKind.PAT, protocol="tcp", inside=22)
TELNET = PortSpec(name="r1_serial", node="r1", kind=PortKind.SERIAL, protocol="serial", inside=0)


def define(
    name: str,
    *,
    cpu: float,
    memory_gb: float,
    nodes: int = 2,
    version: str = "1.0.0",
    cml_version_min: str | None = None,
) -> LabletDefinition:
    """A definition without its topology, which nothing here reads."""
    needs = Capacity(cpu=cpu, memory_gb=memory_gb, storage_gb=5, nodes=nodes)
    return LabletDefinition(
        id=f"{name}-{version}",
        name=name,
        version=version,
        owner="author",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        lab_yaml_hash=f"{name} {version}",
        node_count=nodes,
        demand=Demand(needs=needs, ports=(SSH, TELNET), cml_version_min=cml_version_min),
        computed_needs=needs,
    )


LIGHT = define("light", cpu=1, memory_gb=0.75)
"""A worker of the template `small` takes two of them."""
WHOLE = define("whole", cpu=2, memory_gb=1.5, nodes=4)
"""It takes one of these."""
NEWER = define("newer", cpu=1, memory_gb=0.75, cml_version_min="2.10.0")
"""No worker here is new enough, though 2.9.1 comes after 2.10.0 as a text."""
HUGE = define("huge", cpu=400, memory_gb=4_000)
"""Nothing takes one of these."""

TODAY: dict[str, LabletDefinition] = {}
"""The definitions by name, as authors left them in this run. A session keeps what it was created with."""


class Door(SimulatedPort):
    """The commands of the control plane, as people reach them."""

    name = "people"
    error = Unreachable

    async def ask(self, operation: str, subject: str, command: Callable[[ControlPlane], Awaitable[T]]) -> T:
        return await self._write(operation, subject, lambda: self._handle(command))

    async def _handle(self, command: Callable[[ControlPlane], Awaitable[T]]) -> T:
        """Handle the request in the control plane's own task: a person who goes away does not stop it."""
        plane = self._world.plane
        if plane.requests is None or not plane.is_alive:
            raise Unreachable("control plane: connection refused")
        handling = plane.requests.create_task(_carried_out(plane, command))
        await asyncio.wait({handling}, timeout=self._world.knobs.no_answer_seconds)
        if not handling.done():
            raise Unreachable("control plane: no answer")
        if handling.cancelled() or handling.exception() is not None:
            raise Unreachable("control plane: connection reset")
        outcome = handling.result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


async def _carried_out(plane: PlaneProcess, command: Callable[[ControlPlane], Awaitable[T]]) -> T | LcmError:
    await plane.awake()
    plane.check_alive()
    assert plane.parts is not None
    try:
        return await command(plane.parts.plane)
    except StoreUnavailable as error:
        return Unreachable(str(error))
    except RequestError as error:
        return error


class Desk(Classroom):
    """A teacher who books and ends sessions. Creations carry an idempotency key."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.world)
        self.expectations = story.expectations
        self._door = Door(story.world.user)
        self._count = 0
        TODAY.clear()
        TODAY.update((definition.name, definition) for definition in (LIGHT, WHOLE, NEWER, HUGE))

    def edit(self, definition: LabletDefinition) -> None:
        """Make this the newest version; sessions that exist keep theirs."""
        TODAY[definition.name] = definition

    async def switch_template(self, name: str, action: str) -> None:
        status, answer = await self._ask("POST", f"/api/worker-templates/{name}/{action}", None)
        assert status == 200, answer

    @property
    def session_ids(self) -> list[str]:
        return list(self.world.session_requests)

    def slot(self, in_minutes: float, minutes: float = 20) -> Timeslot:
        start = self.world.clock.now() + in_minutes * MINUTE
        return Timeslot(start=start, end=start + minutes * MINUTE)

    async def book(
        self, definition: LabletDefinition = LIGHT, timeslot: Timeslot | None = None, *, priority: int = 0
    ) -> str:
        """Create one session and return its id, "" if it is refused."""
        request = keyed_request("teacher", self._new_key(), b"session")

        async def create(plane: ControlPlane) -> list[LabletSession]:
            session = await create_session(
                plane.records,
                plane.policies,
                TODAY[definition.name],
                owner_id="teacher",
                timeslot=timeslot,
                priority=priority,
                request=request,
            )
            return [session]

        created = await self._ask_plane("create session", "", create)
        return created[0].id if created else ""

    async def book_class(
        self,
        seats: int,
        definition: LabletDefinition = LIGHT,
        timeslot: Timeslot | None = None,
        *,
        is_all_or_nothing: bool = False,
    ) -> list[str]:
        """Create a session for each seat and return their ids."""
        key = self._new_key()
        request = keyed_request("teacher", key, b"class")

        async def create(plane: ControlPlane) -> list[LabletSession]:
            batch = await create_batch(
                plane.records,
                plane.policies,
                TODAY[definition.name],
                name=key,
                owners=[f"student-{number}" for number in range(seats)],
                by="teacher",
                creator_id="teacher",
                is_all_or_nothing=is_all_or_nothing,
                timeslot=timeslot,
                request=request,
            )
            return [await plane.records.sessions.get(seat_id(batch.id, index)) for index in range(seats)]

        return [session.id for session in await self._ask_plane("create class", "", create)]

    async def end(self, session_id: str) -> None:
        async def end(plane: ControlPlane) -> list[LabletSession]:
            ended = await end_session(
                plane.records, session_id, EndReason.CANCELLED, by="teacher", reason="not needed any more"
            )
            return [ended]

        if await self._ask_plane("end session", session_id, end):
            self.world.session_requests[session_id] = True

    async def extend(self, session_id: str, minutes: float) -> None:
        session = self.session(session_id)
        if session.timeslot is None:
            return
        until = session.timeslot.end + minutes * MINUTE

        async def extend(plane: ControlPlane) -> list[LabletSession]:
            extended = await extend_session(
                plane.records, plane.policies, session_id, until, by="teacher", may_exceed=True
            )
            return [extended]

        await self._ask_plane("extend session", session_id, extend)

    async def claim_late(self, worker_id: str, session_id: str) -> None:
        """Let the second write of an earlier placement arrive only now."""
        session = self.session(session_id)

        async def claim(plane: ControlPlane) -> list[LabletSession]:
            await plane.records.workers.change(
                worker_id,
                lambda worker: admission.claim(
                    worker,
                    session.demand,
                    session_id=session_id,
                    attempt=99,
                    ends_at=None,
                    ports=plane.policies.ports,
                    now=plane.records.clock.now(),
                ),
            )
            return [session]

        await self._ask_plane("claim late", worker_id, claim)

    async def until_a_drain_begins(self, worker_id: str) -> None:
        """Look so often that the controller has not acted on it yet."""
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while (worker := self.world.disk.peek(worker_id)) is None or worker.status is not DRAINING:
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"{worker_id} is not drained")
            await self.pause(0.02)

    async def until_released(self, worker_id: str) -> None:
        ends = self.world.clock.monotonic() + PATIENCE_SECONDS
        while (worker := self.world.disk.peek(worker_id)) is not None and worker.claims:
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"{worker.name} still has claims")
            await self.pause(5.0)

    async def end_all(self) -> None:
        """End every session and keep every worker; when all is settled, each session must have ended."""
        for session_id in self.session_ids:
            await self.end(session_id)
        if self.world.knobs.people:
            await self.keep_everything()

    def session(self, session_id: str) -> LabletSession:
        session = self.world.disk.session(session_id)
        assert session is not None, f"session {session_id} is lost"
        return session

    async def until_session(
        self, session_id: str, *statuses: SessionStatus, within_seconds: float = PATIENCE_SECONDS
    ) -> LabletSession:
        """Wait for one of these statuses."""
        ends = self.world.clock.monotonic() + within_seconds
        while (session := self.session(session_id)).status not in statuses:
            if self.world.clock.monotonic() > ends:
                raise TooLate(f"session {session_id} is {session.status}, not {', '.join(statuses)}")
            await self.pause(1.0)
        return session

    def _new_key(self) -> str:
        self._count += 1
        return f"request-{self._count}"

    async def _ask_plane(
        self,
        operation: str,
        subject: str,
        command: Callable[[ControlPlane], Awaitable[Sequence[LabletSession]]],
    ) -> Sequence[LabletSession]:
        """Repeat the request until it is answered; a refusal is an empty answer."""
        while True:
            if self.world.is_over:
                raise RunEnded
            try:
                answered = await self._door.ask(operation, subject, command)
            except Unreachable:
                await self.world.clock.sleep(2.0)
                continue
            except RequestError:
                return ()
            for session in answered:
                self._remember(session)
            return answered

    def _remember(self, session: LabletSession) -> None:
        if session.id in self.world.session_requests:
            return
        self.world.session_requests[session.id] = False

        def is_missing() -> str | None:
            now = self.world.disk.session(session.id)
            if now is None:
                self.world.fail(Violation("I11DurableAcknowledgements", f"session {session.id} is lost"))
                raise RunEnded
            is_wanted = now.desired_status is SessionDesiredStatus.RUNNING
            return None if now.is_ended else f"session {session.id} is {now.status}, {is_wanted=}"

        self.expectations.append(is_missing)
