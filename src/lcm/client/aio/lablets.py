"""Lablet definitions, sessions and classes."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from lcm.client.aio.link import AsyncEvents, AsyncLink
from lcm.client.aio.waiting import AsyncWait, OnProgress
from lcm.client.calls import PAGE, Call, route
from lcm.client.errors import NotFound
from lcm.client.goals import SessionGoal, standing_of_session
from lcm.domain.lablet.definition import DefinitionOptions
from lcm.domain.lablet.states import SessionStatus
from lcm.rest.lablet_access import AccessLogin, BatchAccess, SessionAccess
from lcm.rest.lablet_requests import NewBatch, NewDefinition, NewEnd, NewSession, NewTimeslot, TopologyText
from lcm.rest.lablets import LabletSessionPage, LabletSessionView, SessionHistory
from lcm.rest.scheduling import (
    BatchCreated,
    BatchView,
    LabletDefinitionPage,
    LabletDefinitionView,
    PreviewRequest,
    SchedulingPreview,
    SchedulingQueue,
    SessionCreated,
    SessionExplanation,
    TopologyAnalysis,
)


class AsyncDefinitions:
    """Lablet definitions. One is named by its id or, for the newest active version, by its name."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(self, *, name: str | None = None) -> list[LabletDefinitionView]:
        """Return all versions that are not deleted."""
        found: list[LabletDefinitionView] = []
        after: str | None = None
        while True:
            query = {"name": name, "limit": PAGE, "after": after}
            call = Call(path="/api/lablet-definitions", query=query, answer=LabletDefinitionPage)
            page = await self._link.send(call)
            found += page.items
            after = page.next
            if after is None:
                return found

    async def get(self, definition: str) -> LabletDefinitionView:
        path = route("/api/lablet-definitions/{}", definition)
        return await self._link.send(Call(path=path, answer=LabletDefinitionView))

    async def analyse(self, lab_yaml: str) -> TopologyAnalysis:
        """Return what a topology needs and where it can run; nothing is stored."""
        path = "/api/lablet-definitions/analyse"
        body = TopologyText(lab_yaml=lab_yaml)
        return await self._link.send(Call(method="POST", path=path, body=body, answer=TopologyAnalysis))

    async def analysis(self, definition: str) -> TopologyAnalysis:
        """Return the same of a stored definition."""
        path = route("/api/lablet-definitions/{}/analysis", definition)
        return await self._link.send(Call(path=path, answer=TopologyAnalysis))

    async def set_access(self, definition: str, login: AccessLogin) -> LabletDefinitionView:
        """Set the login that people get for the nodes of their session."""
        path = route("/api/lablet-definitions/{}/access", definition)
        call = Call(method="PUT", path=path, body=login, is_keyed=True, answer=LabletDefinitionView)
        return await self._link.send(call)

    async def create(
        self,
        name: str,
        lab_yaml: str,
        *,
        version: str | None = None,
        options: DefinitionOptions | None = None,
        access: AccessLogin | None = None,
    ) -> LabletDefinitionView:
        """Store a topology as CML exports it; its needs are computed."""
        body = NewDefinition(name=name, lab_yaml=lab_yaml, access=access)
        if version is not None:
            body = replace(body, version=version)
        if options is not None:
            body = replace(body, options=options)
        call = Call(
            method="POST",
            path="/api/lablet-definitions",
            body=body,
            is_keyed=True,
            answer=LabletDefinitionView,
        )
        return await self._link.send(call)

    async def topology(self, definition: str) -> str:
        path = route("/api/lablet-definitions/{}/topology", definition)
        return (await self._link.send(Call(path=path, answer=bytes))).decode()

    async def deprecate(self, definition: str) -> LabletDefinitionView:
        path = route("/api/lablet-definitions/{}/deprecate", definition)
        call = Call(method="POST", path=path, is_keyed=True, answer=LabletDefinitionView)
        return await self._link.send(call)

    async def delete(self, definition: str) -> None:
        path = route("/api/lablet-definitions/{}", definition)
        return await self._link.send(Call(method="DELETE", path=path, is_keyed=True, answer=type(None)))


class AsyncSessions:
    """Lablet sessions, named by their id."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def list_all(
        self,
        *,
        statuses: Sequence[SessionStatus] = (),
        owner: str | None = None,
        definition: str | None = None,
        worker_id: str | None = None,
        batch_id: str | None = None,
        include_ended: bool = False,
    ) -> list[LabletSessionView]:
        found: list[LabletSessionView] = []
        after: str | None = None
        while True:
            query = {
                "status": tuple(statuses),
                "owner": owner,
                "definition": definition,
                "worker_id": worker_id,
                "batch_id": batch_id,
                "include_ended": include_ended or None,
                "limit": PAGE,
                "after": after,
            }
            page = await self._link.send(
                Call(path="/api/lablet-sessions", query=query, answer=LabletSessionPage)
            )
            found += page.items
            after = page.next
            if after is None:
                return found

    async def get(self, session_id: str) -> LabletSessionView:
        path = route("/api/lablet-sessions/{}", session_id)
        return await self._link.send(Call(path=path, answer=LabletSessionView))

    async def create(self, definition: str, *, timeslot: NewTimeslot | None = None) -> SessionCreated:
        """Run a lab now, or in a timeslot."""
        body = NewSession(definition=definition, timeslot=timeslot)
        call = Call(
            method="POST", path="/api/lablet-sessions", body=body, is_keyed=True, answer=SessionCreated
        )
        return await self._link.send(call)

    async def end(self, session_id: str) -> LabletSessionView:
        path = route("/api/lablet-sessions/{}/end", session_id)
        call = Call(method="POST", path=path, is_keyed=True, answer=LabletSessionView)
        return await self._link.send(call)

    async def extend(self, session_id: str, end: datetime) -> LabletSessionView:
        path = route("/api/lablet-sessions/{}/extend", session_id)
        call = Call(method="POST", path=path, body=NewEnd(end=end), is_keyed=True, answer=LabletSessionView)
        return await self._link.send(call)

    async def retry(self, session_id: str) -> LabletSessionView:
        """Create a session in place of one that failed; a repeated request returns the same session."""
        path = route("/api/lablet-sessions/{}/retry", session_id)
        call = Call(method="POST", path=path, is_keyed=True, answer=LabletSessionView)
        return await self._link.send(call)

    async def explain(self, session_id: str) -> SessionExplanation:
        path = route("/api/lablet-sessions/{}/explain", session_id)
        return await self._link.send(Call(path=path, answer=SessionExplanation))

    async def history(self, session_id: str) -> SessionHistory:
        path = route("/api/lablet-sessions/{}/history", session_id)
        return await self._link.send(Call(path=path, answer=SessionHistory))

    async def access(self, session_id: str) -> SessionAccess:
        path = route("/api/lablet-sessions/{}/access", session_id)
        return await self._link.send(Call(path=path, answer=SessionAccess))

    async def preview(self, request: PreviewRequest) -> SchedulingPreview:
        """Return what would happen; nothing is recorded."""
        call = Call(method="POST", path="/api/scheduling/preview", body=request, answer=SchedulingPreview)
        return await self._link.send(call)

    async def queue(self) -> SchedulingQueue:
        return await self._link.send(Call(path="/api/scheduling/queue", answer=SchedulingQueue))

    async def wait(
        self,
        session_id: str,
        goal: str,
        *,
        timeout_seconds: float = 900.0,
        on_progress: OnProgress = lambda _id, _standing: None,
    ) -> LabletSessionView | None:
        """Return the session when it has reached a `SessionGoal`. Raises WaitFailed or WaitTimedOut."""
        found = await self.wait_for_all(
            [session_id], goal, timeout_seconds=timeout_seconds, on_progress=on_progress
        )
        return found[session_id]

    async def wait_for_all(
        self,
        session_ids: Sequence[str],
        goal: str,
        *,
        timeout_seconds: float = 900.0,
        on_progress: OnProgress = lambda _id, _standing: None,
    ) -> Mapping[str, LabletSessionView | None]:
        """Return the sessions when all of them have reached a goal. Raises WaitFailed or WaitTimedOut."""
        wanted = SessionGoal(goal)
        wait = AsyncWait[LabletSessionView](
            session_ids,
            lambda found: standing_of_session(wanted, found),
            self._find,
            lambda event: event.session,
            on_progress,
        )
        events = AsyncEvents(self._link, types=["lablet.session."])
        return await wait.run(self._link.clock, events, timeout_seconds)

    async def _find(self, session_id: str) -> LabletSessionView | None:
        try:
            return await self.get(session_id)
        except NotFound:
            return None


class AsyncClasses:
    """Classes: many sessions of one definition, named by their id."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def create(
        self,
        name: str,
        definition: str,
        seats: int,
        *,
        timeslot: NewTimeslot | None = None,
        all_or_nothing: bool = False,
        owners: Sequence[str] = (),
    ) -> BatchCreated:
        body = NewBatch(
            name=name,
            definition=definition,
            count=seats,
            timeslot=timeslot,
            all_or_nothing=all_or_nothing,
            owners=tuple(owners),
        )
        call = Call(
            method="POST", path="/api/lablet-sessions/batch", body=body, is_keyed=True, answer=BatchCreated
        )
        return await self._link.send(call)

    async def get(self, class_id: str) -> BatchView:
        return await self._link.send(Call(path=route("/api/lablet-batches/{}", class_id), answer=BatchView))

    async def access(self, class_id: str) -> BatchAccess:
        path = route("/api/lablet-batches/{}/access", class_id)
        return await self._link.send(Call(path=path, answer=BatchAccess))

    async def access_table(self, class_id: str) -> str:
        """Return the sheet of a class as CSV, for a spreadsheet."""
        path = route("/api/lablet-batches/{}/access", class_id)
        return (await self._link.send(Call(path=path, query={"format": "csv"}, answer=bytes))).decode()

    async def end(self, class_id: str) -> BatchView:
        path = route("/api/lablet-batches/{}/end", class_id)
        return await self._link.send(Call(method="POST", path=path, is_keyed=True, answer=BatchView))
