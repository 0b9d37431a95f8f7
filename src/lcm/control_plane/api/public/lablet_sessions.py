"""Lablet sessions and classes, for people. A viewer sees and ends only sessions of their own."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query
from msgspec.structs import replace
from starlette.responses import Response

from lcm.control_plane.access.roles import Principal, Role
from lcm.control_plane.api.dependencies import Given, Keyed, Moment, Operator, Plane, Viewer
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.commands.lablets.batches import create_batch, end_batch
from lcm.control_plane.commands.lablets.create_session import create_session, retry_session
from lcm.control_plane.commands.lablets.end_session import end_session
from lcm.control_plane.commands.lablets.extend_session import extend_session
from lcm.control_plane.commands.lablets.restart_lab import restart_lab
from lcm.control_plane.queries.forecast import forecast, refuse_overbooking
from lcm.control_plane.queries.lablet_sessions import (
    SessionFilter,
    batch_to_hand_out,
    list_sessions,
    page_of_sessions,
    view_of_batch,
    visible_session,
)
from lcm.control_plane.queries.session_access import AccessReader, access_of_class
from lcm.control_plane.records.preconditions import etag
from lcm.domain.errors import NotFound, UnknownReference
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.session import LabletSession, lab_lead
from lcm.domain.lablet.states import EndReason, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.rest.lablet_access import COLUMNS, BatchAccess, SessionAccess
from lcm.rest.lablet_requests import NewBatch, NewEnd, NewSession
from lcm.rest.lablets import LabletSessionPage, LabletSessionView, SessionHistory
from lcm.rest.scheduling import BatchCreated, BatchView, Forecast, LabletAuditPage, SessionCreated
from lcm.web import csv_text
from lcm.web.answers import answer, body_of, documented, reads

router = APIRouter(prefix="/api", tags=["lablet sessions"])

_ACCEPTED = documented(LabletSessionView, 202, "Accepted; effects follow.", problems=[404, 409, 412, 422])

_SHEET = documented(BatchAccess, problems=[404, 422])
_SHEET["responses"][200]["content"][csv_text.MEDIA_TYPE] = {"schema": {"type": "string"}}

After = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500)]


def _accepted(session: LabletSession) -> Response:
    return answer(LabletSessionView.of(session), 202, etag=etag(session.version))


class _Foresight:
    """The forecast of a booking, made before it is recorded, or afterwards for a repeated request."""

    def __init__(
        self,
        plane: ControlPlane,
        definition: LabletDefinition,
        timeslot: Timeslot | None,
        *,
        seats: int,
        region: str | None,
    ) -> None:
        self._plane = plane
        self._definition = definition
        self._timeslot = timeslot
        self._seats = seats
        self._region = region
        self._found: Forecast | None = None

    async def judge(self, _: LabletSession) -> None:
        """Refuse a booking without room, if such bookings are refused."""
        refuse_overbooking(self._plane.policies, await self.found())

    async def found(self) -> Forecast:
        """Return the forecast; one by which bookings are refused is made anew for each."""
        if self._found is None and self._plane.policies.refuses_overbooking:
            self._found = await self._compute()
        elif self._found is None:
            question = (self._definition.id, self._region, self._seats, self._timeslot)
            self._found = await self._plane.caches.forecasts.get(question, self._compute)
        return self._found

    async def _compute(self) -> Forecast:
        records, policies, definition = self._plane.records, self._plane.policies, self._definition
        takes = records.lab_times.expected(definition.lab_yaml_hash)
        return await forecast(
            records,
            policies,
            replace(definition.demand, region=self._region),
            seats=self._seats,
            timeslot=self._timeslot,
            max_minutes=definition.options.max_duration_minutes,
            lab_lead=lab_lead(definition, takes, policies.times),
        )


async def _definition(plane: ControlPlane, body: NewSession | NewBatch) -> LabletDefinition:
    """Return the definition that a request names. Raises UnknownReference."""
    definitions = plane.records.definitions
    try:
        if body.definition_id is not None:
            return (await definitions.get(body.definition_id)).definition
        return (await definitions.named(body.definition or "", body.version)).definition
    except NotFound as error:
        raise UnknownReference(str(error)) from None


@router.get(
    "/lablet-sessions", summary="List lablet sessions", **documented(LabletSessionPage, problems=[422])
)
async def list_all(
    person: Viewer,
    plane: Plane,
    status: Annotated[list[SessionStatus] | None, Query(description="Only these statuses.")] = None,
    owner: Annotated[str | None, Query(max_length=200)] = None,
    definition: Annotated[str | None, Query(max_length=200, description="A name or an id.")] = None,
    worker_id: Annotated[str | None, Query(max_length=63)] = None,
    batch_id: Annotated[str | None, Query(max_length=63)] = None,
    since: Annotated[
        Moment | None, Query(alias="from", description="Only sessions that last beyond this moment.")
    ] = None,
    until: Annotated[
        Moment | None, Query(alias="to", description="Only sessions that begin before this moment.")
    ] = None,
    include_ended: bool = False,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    """Newest first; ended ones only with `include_ended` or with a status that is an end. A viewer sees own
    sessions only."""
    wanted = SessionFilter(
        statuses=status or (),
        owner=owner,
        definition=definition,
        worker_id=worker_id,
        batch_id=batch_id,
        since=since,
        until=until,
        include_ended=include_ended,
    )
    sessions = await list_sessions(plane.records, person, wanted)
    return answer(page_of_sessions(sessions, limit=limit, after=after))


@router.post(
    "/lablet-sessions",
    summary="Create a lablet session",
    **documented(SessionCreated, 201, "Created.", problems=[409, 422]),
    **reads(NewSession),
)
async def create(
    person: Operator, body: Annotated[NewSession, Depends(body_of(NewSession))], plane: Plane, keyed: Keyed
) -> Response:
    """Book a timeslot, or start as soon as possible; the scheduler looks for a worker.

    Refused if no worker and no template could ever run it. The forecast says whether the timeslot has room.
    With an `Idempotency-Key` a repeated request returns the same session.
    """
    definition = await _definition(plane, body)
    timeslot = body.timeslot.booked() if body.timeslot else None
    foresight = _Foresight(plane, definition, timeslot, seats=1, region=body.aws_region)
    session = await create_session(
        plane.records,
        plane.policies,
        definition,
        owner_id=person.id,
        by=person.name,
        timeslot=timeslot,
        region=body.aws_region,
        reservation_id=body.reservation_id,
        priority=body.priority,
        request=keyed,
        judge=foresight.judge,
    )
    view = LabletSessionView.of(session)
    created = SessionCreated(session=view, forecast=await foresight.found())
    return answer(created, 201, etag=etag(session.version))


@router.post(
    "/lablet-sessions/batch",
    summary="Create a class",
    **documented(BatchCreated, 202, "Accepted.", problems=[409, 422]),
    **reads(NewBatch),
)
async def create_class(
    person: Operator, body: Annotated[NewBatch, Depends(body_of(NewBatch))], plane: Plane, keyed: Keyed
) -> Response:
    """A session for each seat, at one time. Refused as a whole if no worker could ever run a seat.

    With an `Idempotency-Key` a repeated request returns the same class, and completes it after a crash.
    """
    definition = await _definition(plane, body)
    timeslot = body.timeslot.booked() if body.timeslot else None
    foresight = _Foresight(plane, definition, timeslot, seats=body.count, region=body.aws_region)
    batch = await create_batch(
        plane.records,
        plane.policies,
        definition,
        name=body.name,
        owners=body.owners or (person.id,) * body.count,
        by=person.name,
        creator_id=person.id,
        is_all_or_nothing=body.all_or_nothing,
        timeslot=timeslot,
        region=body.aws_region,
        file_set=body.file_set,
        request=keyed,
        judge=foresight.judge,
    )
    view = await view_of_batch(plane.records, person, batch)
    created = BatchCreated(batch=view, forecast=await foresight.found())
    return answer(created, 202, etag=etag(batch.version))


@router.get(
    "/lablet-sessions/{session_id}",
    summary="Get a lablet session",
    **documented(LabletSessionView, problems=[404]),
)
async def get(session_id: str, person: Viewer, plane: Plane) -> Response:
    """Live or ended. The `ETag` names this version; send it as `If-Match` to change this version only."""
    session = await visible_session(plane.records, person, session_id)
    return answer(LabletSessionView.of(session), etag=etag(session.version))


@router.get(
    "/lablet-sessions/{session_id}/history",
    summary="Get the history of a lablet session",
    **documented(SessionHistory, problems=[404]),
)
async def history(session_id: str, person: Viewer, plane: Plane) -> Response:
    """Every change of its status with its actor and reason, oldest first."""
    session = await visible_session(plane.records, person, session_id)
    return answer(SessionHistory(items=session.state_history))


@router.get(
    "/lablet-sessions/{session_id}/access",
    summary="Get access to the lab of a lablet session",
    **documented(SessionAccess, problems=[404, 409]),
)
async def access(session_id: str, person: Viewer, plane: Plane) -> Response:
    """The present address of its worker and the port of each node that is not hidden, for its owner and for
    operators, as long as it is READY or RUNNING. Nothing else shows them."""
    session = await visible_session(plane.records, person, session_id)
    return answer(await AccessReader(plane.records, plane.policies).access_of(session))


@router.post("/lablet-sessions/{session_id}/end", summary="End a lablet session", **_ACCEPTED)
async def end(session_id: str, person: Viewer, plane: Plane, given: Given) -> Response:
    """Its lab is removed, then it ends. Ending a session that ends or has ended changes nothing."""
    session = await visible_session(plane.records, person, session_id)
    if session.is_ended:
        return _accepted(session)
    ended = await end_session(
        plane.records,
        session_id,
        EndReason.CANCELLED,
        by=person.name,
        reason=f"ended by {person.name}",
        preconditions=given,
    )
    return _accepted(ended)


@router.post(
    "/lablet-sessions/{session_id}/extend",
    summary="Extend a lablet session",
    **_ACCEPTED,
    **reads(NewEnd),
)
async def extend(
    session_id: str,
    person: Viewer,
    body: Annotated[NewEnd, Depends(body_of(NewEnd))],
    plane: Plane,
    given: Given,
) -> Response:
    """Book a later end. Only an operator may exceed the duration that the definition allows. Refused with
    `next_booking` if a session that waits counts on the room."""
    await visible_session(plane.records, person, session_id)
    extended = await extend_session(
        plane.records,
        plane.policies,
        session_id,
        body.moment(),
        by=person.name,
        may_exceed=person.role >= Role.OPERATOR,
        preconditions=given,
    )
    return _accepted(extended)


@router.post("/lablet-sessions/{session_id}/retry", summary="Retry a failed lablet session", **_ACCEPTED)
async def retry(session_id: str, person: Viewer, plane: Plane) -> Response:
    """Create a session in place of one that failed; `retry_of` names that one. A repeated request returns
    the same session."""
    failed = await visible_session(plane.records, person, session_id)
    return _accepted(await retry_session(plane.records, plane.policies, failed, by=person.name))


@router.post(
    "/lablet-sessions/{session_id}/restart-lab", summary="Start the lab of a session again", **_ACCEPTED
)
async def restart(session_id: str, person: Viewer, plane: Plane, given: Given) -> Response:
    """Of a session that runs: the nodes of its lab that are at rest are started. Repeating it before that is
    done changes nothing."""
    await visible_session(plane.records, person, session_id)
    return _accepted(await restart_lab(plane.records, session_id, by=person.name, preconditions=given))


@router.get("/lablet-batches/{batch_id}", summary="Get a class", **documented(BatchView, problems=[404]))
async def get_class(batch_id: str, person: Viewer, plane: Plane) -> Response:
    """Its sessions by seat, and how many there are of each status. A viewer sees own seats only."""
    return await _class(plane, person, batch_id)


@router.get("/lablet-batches/{batch_id}/access", summary="Get access to the labs of a class", **_SHEET)
async def class_access(
    batch_id: str,
    person: Viewer,
    plane: Plane,
    form: Annotated[
        Literal["json", "csv"] | None,
        Query(alias="format", description="Instead of a header `Accept: text/csv`."),
    ] = None,
    accept: Annotated[str, Header(max_length=1000)] = "",
) -> Response:
    """Every seat with its ports, for operators and the creator of the class. As CSV a row for each seat and
    port; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    batch = await batch_to_hand_out(plane.records, person, batch_id)
    sheet = await access_of_class(plane.records, plane.policies, batch)
    if form == "csv" or (form is None and csv_text.MEDIA_TYPE in accept):
        table = csv_text.csv_text(COLUMNS, sheet.rows())
        name = f'attachment; filename="access-{batch.id}.csv"'
        return Response(table, headers={"Content-Disposition": name}, media_type=csv_text.MEDIA_TYPE)
    return answer(sheet)


@router.post(
    "/lablet-batches/{batch_id}/end",
    summary="End a class",
    **documented(BatchView, 202, "Accepted; effects follow.", problems=[404, 409, 412, 422]),
)
async def end_class(batch_id: str, person: Operator, plane: Plane, given: Given) -> Response:
    """End every session of the class. Repeating it changes nothing."""
    await end_batch(plane.records, batch_id, by=person.name, preconditions=given)
    return await _class(plane, person, batch_id, 202)


async def _class(plane: ControlPlane, person: Principal, batch_id: str, status: int = 200) -> Response:
    batch = await plane.records.batches.get(batch_id)
    view = await view_of_batch(plane.records, person, batch)
    return answer(view, status, etag=etag(batch.version))


@router.get("/lablet-audit", summary="List lablet events", **documented(LabletAuditPage, problems=[422]))
async def audit(
    _: Operator,
    plane: Plane,
    event: LabletEvent | None = None,
    session_id: Annotated[str | None, Query(max_length=63)] = None,
    definition_id: Annotated[str | None, Query(max_length=63)] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    """What happened to definitions and sessions, newest first."""
    entries = await plane.records.lablet_audit.newest(
        event=event, session_id=session_id, definition_id=definition_id, before=after
    )
    rest = entries[limit - 1].id if len(entries) > limit else None
    return answer(LabletAuditPage(items=entries[:limit], next=rest))
