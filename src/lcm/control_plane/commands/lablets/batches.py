"""A class: many sessions of one definition, created and ended together.

The record of the class is written first; its sessions follow from it. Whatever a crash interrupts is finished
by a repeated request or by `sweep_batches`.
"""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from lcm.control_plane.commands.lablets.create_session import (
    Judge,
    admit_all,
    find_session,
    record_session,
)
from lcm.control_plane.commands.lablets.end_session import finish_ending
from lcm.control_plane.commands.together import all_of
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.possibility import refuse_impossible, refuse_unknown_region
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.errors import Conflict, NotFound, RequestError
from lcm.domain.idempotency import KeyedRequest, refuse_other_content
from lcm.domain.lablet.batch import LabletBatch, complete, request_batch_end, seats
from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import request_end
from lcm.domain.lablet.states import EndReason
from lcm.domain.lablet.timeslot import Timeslot

REPAIRED_AFTER: Final = timedelta(seconds=60)
"""The request that creates a class has ended by then."""


async def create_batch(
    records: Records,
    policies: Policies,
    definition: LabletDefinition,
    *,
    name: str,
    owners: Sequence[str],
    by: str,
    creator_id: str,
    is_all_or_nothing: bool,
    timeslot: Timeslot | None = None,
    region: str | None = None,
    file_set: str | None = None,
    request: KeyedRequest | None = None,
    judge: Judge = admit_all,
) -> LabletBatch:
    """Record a class and a session for every owner; nothing of it if a seat can never be placed.

    With an idempotency key a repeated request finds the class that it created, and completes it.
    """
    refuse_unknown_region(policies, region)
    created = await _find_created(records, request)
    if created is None:
        batch = LabletBatch(
            id=_keyed_id(request) if request else records.ids.new_id(),
            name=name,
            definition=definition,
            owners=tuple(owners),
            timeslot=timeslot,
            is_all_or_nothing=is_all_or_nothing,
            region=region,
            file_set=file_set,
            created_at=records.clock.now(),
            created_by=by,
            creator_id=creator_id,
            request_digest=request.content if request else None,
        )
        await _refuse_bad(records, policies, batch, judge)
        created = await _add(records, batch, request)
    return await complete_batch(records, policies, created)


async def _refuse_bad(records: Records, policies: Policies, batch: LabletBatch, judge: Judge) -> None:
    """All seats are alike: what is wrong with the first is wrong with all."""
    first = next(_seats(records, policies, batch))
    await refuse_impossible(records, policies, first.demand)
    await judge(first)


def _seats(records: Records, policies: Policies, batch: LabletBatch) -> Iterator[LabletSession]:
    takes = records.lab_times.expected(batch.definition.lab_yaml_hash)
    return seats(batch, lab_takes=takes, policy=policies.times)


async def complete_batch(records: Records, policies: Policies, batch: LabletBatch) -> LabletBatch:
    """Record the sessions that are missing. Repeating it changes nothing."""
    if batch.is_complete or batch.end_asked_at is not None:
        return batch
    await all_of(
        _record_seat(records, session, by=batch.created_by) for session in _seats(records, policies, batch)
    )
    return await records.batches.change(batch.id, complete)


async def _record_seat(records: Records, session: LabletSession, *, by: str) -> None:
    if await find_session(records, session.id) is None:
        try:
            await record_session(records, session, by=by)
        except Conflict:
            return  # another request completes the class at this moment


async def end_batch(
    records: Records, batch_id: str, *, by: str, preconditions: Preconditions = UNCONDITIONAL
) -> LabletBatch:
    """Request the end of every session of the class; a repeated request changes nothing."""
    now = records.clock.now()
    batch = await records.batches.change(
        batch_id,
        preconditions.guard(lambda current: request_batch_end(current, by=by, now=now), noun="class"),
    )
    await end_seats(records, batch)
    return batch


async def end_seats(records: Records, batch: LabletBatch) -> None:
    """End the live sessions of a class whose end is requested. What fails is repeated by the sweep."""
    live = [
        session
        for session in await records.sessions.list_all()
        if session.batch is not None and session.batch.id == batch.id and not session.is_ended
    ]
    asked = await all_of(_request_end(records, each.id, batch) for each in live)
    for session in asked:  # one after the other: seats of one worker share its record
        if session is not None:
            await _finish(records, session)


async def _request_end(records: Records, session_id: str, batch: LabletBatch) -> LabletSession | None:
    by, now = batch.end_asked_by or "control plane", records.clock.now()

    def ask(current: LabletSession) -> LabletSession:
        if current.is_ended:
            return current
        return request_end(current, EndReason.CANCELLED, by=by, reason=f"the class ended, by {by}", now=now)

    try:
        return await records.sessions.change(session_id, ask)
    except (Conflict, NotFound):
        return None


async def _finish(records: Records, session: LabletSession) -> None:
    try:
        await finish_ending(records, session)
    except RequestError:
        return


async def sweep_batches(records: Records, policies: Policies) -> None:
    """Finish the classes that a crash left half created or half ended, and forget those without sessions."""
    now = records.clock.now()
    for batch in await records.batches.list_all():
        if now - batch.created_at < REPAIRED_AFTER:
            continue
        try:
            if batch.end_asked_at is not None:
                await end_seats(records, batch)
            else:
                await complete_batch(records, policies, batch)
        except RequestError:
            continue


async def forget_batches(records: Records, *, before: datetime) -> None:
    """Remove the classes created before this, unless a session of them is live."""
    live = {session.batch.id for session in await records.sessions.list_all() if session.batch is not None}
    for batch in await records.batches.list_all():
        if batch.created_at < before and batch.id not in live:
            try:
                await records.batches.purge(batch)
            except Conflict:
                continue


async def _find_created(records: Records, request: KeyedRequest | None) -> LabletBatch | None:
    if request is None:
        return None
    created = await records.batches.find(_keyed_id(request))
    if created is not None:
        refuse_other_content(created.request_digest, request)
    return created


async def _add(records: Records, batch: LabletBatch, request: KeyedRequest | None) -> LabletBatch:
    try:
        return await records.batches.add(batch)
    except Conflict:
        created = await _find_created(records, request)
        if created is None:
            raise
        return created


def _keyed_id(request: KeyedRequest) -> str:
    return str(uuid.uuid5(uuid.UUID(hex=request.key, version=4), "lablet-batch"))
