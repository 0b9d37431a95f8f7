"""A class: the request for many sessions of one definition, recorded before any of them.

So a crash leaves no half class: the sessions that are missing follow from the record.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from lcm.domain.idempotency import KeyedRequest
from lcm.domain.lablet.definition import LabletDefinition
from lcm.domain.lablet.session import Batch, LabletSession, create_session, seat_id
from lcm.domain.lablet.timeslot import DEFAULTS, Timeslot, TimeslotPolicy


class LabletBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a class."""

    id: str
    version: int = 1
    name: str
    definition: LabletDefinition
    """As it was when the class was created."""
    owners: tuple[str, ...]
    """The owner of each seat."""
    timeslot: Timeslot | None = None
    is_all_or_nothing: bool = False
    region: str | None = None
    created_at: datetime
    created_by: str
    creator_id: str
    is_complete: bool = False
    """Every seat has its session."""
    file_set: str | None = None
    """The set of fleet files that it was created from."""
    end_asked_by: str | None = None
    end_asked_at: datetime | None = None
    request_digest: str | None = None
    """Digest of the request under the idempotency key from which its id was derived."""
    recent_requests: tuple[KeyedRequest, ...] = ()


def seats(
    batch: LabletBatch, *, lab_takes: timedelta = timedelta(), policy: TimeslotPolicy = DEFAULTS
) -> Iterator[LabletSession]:
    """The sessions of a class as they were requested, whatever has become of the definition since."""
    for index, owner_id in enumerate(batch.owners):
        yield create_session(
            batch.definition,
            session_id=seat_id(batch.id, index),
            owner_id=owner_id,
            now=batch.created_at,
            timeslot=batch.timeslot,
            batch=Batch(
                id=batch.id,
                name=batch.name,
                index=index,
                size=len(batch.owners),
                is_all_or_nothing=batch.is_all_or_nothing,
            ),
            region=batch.region,
            lab_takes=lab_takes,
            policy=policy,
        )


def complete(batch: LabletBatch) -> LabletBatch:
    """Every seat has its session."""
    return replace(batch, is_complete=True)


def request_batch_end(batch: LabletBatch, *, by: str, now: datetime) -> LabletBatch:
    """Request the end of every session; the first request counts."""
    if batch.end_asked_at is not None:
        return batch
    return replace(batch, end_asked_by=by, end_asked_at=now)
