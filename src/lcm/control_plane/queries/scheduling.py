"""What the placement engine needs to know, in one answer, for the scheduler, previews and explanations."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.fleet_token import has_fleet_token
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.growth import growth
from lcm.control_plane.records.possibility import template_view
from lcm.domain.lablet.admission import is_licensing, view_of
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.snapshot import PlacementTemplate, PlacementWorker, Snapshot
from lcm.domain.lablet.states import PENDING, PENDING_SCHEDULING
from lcm.domain.lifecycle import RUNNING
from lcm.domain.template import WorkerTemplate
from lcm.domain.way_up import way_up
from lcm.domain.worker import Worker

LICENSING: Final = timedelta(minutes=2)
"""How long a registration takes, at most as a rule."""


class _Arrival(NamedTuple):
    """When half of such workers take sessions, and when most do."""

    early: datetime | None
    likely: datetime | None


_ANY_TIME: Final = _Arrival(None, None)


async def scheduling_snapshot(
    records: Records,
    policies: Policies,
    *,
    caches: Caches | None = None,
    also: tuple[LabletSession, ...] = (),
) -> Snapshot:
    """Return the workers, the waiting sessions and `also`, and how far the fleet may grow.

    Without `caches` no worker counts as overloaded: what is decided now needs them.
    """
    snapshot = await read_snapshot(records, policies, caches=caches, also=also)
    return replace(snapshot, revision=_revision(snapshot))


async def read_snapshot(
    records: Records,
    policies: Policies,
    *,
    caches: Caches | None = None,
    also: Sequence[LabletSession] = (),
) -> Snapshot:
    """Return the same without its revision, which only the scheduler needs."""
    sessions = await records.sessions.list_all()
    waiting = waiting_of(sessions)
    workers = await records.workers.list_live()
    trusted = [worker for worker in workers if worker.is_trusted]
    templates = await records.templates.list_all()
    prices = {template.name: template.usd_per_hour for template in templates}
    has_token = await has_fleet_token(records)
    views = [_view(worker, records, policies, caches, has_token) for worker in trusted]
    return Snapshot(
        workers=tuple(
            replace(view, usd_per_hour=prices.get(worker.template_name))
            for worker, view in zip(trusted, views, strict=True)
        ),
        sessions=(*waiting, *also),
        incomplete_batches=await _incomplete_batches(records, sessions, waiting),
        templates=tuple(_template(template, caches) for template in templates),
        growth=await growth(records, policies, workers, has_fleet_token=has_token),
        ports=policies.ports,
        times=policies.times,
        headroom_percent=policies.headroom_percent,
    )


def is_wanted(session: LabletSession) -> bool:
    """Whether the end of the session is not requested."""
    return session.desired_status is SessionDesiredStatus.RUNNING


def waiting_of(sessions: Iterable[LabletSession]) -> list[LabletSession]:
    """Return those that wait for a worker."""
    return [each for each in sessions if each.status is PENDING_SCHEDULING and is_wanted(each)]


def booked_of(sessions: Iterable[LabletSession]) -> list[LabletSession]:
    """Return those whose window is not open yet."""
    return [each for each in sessions if each.status is PENDING and is_wanted(each)]


async def _incomplete_batches(
    records: Records, sessions: Iterable[LabletSession], waiting: Iterable[LabletSession]
) -> tuple[str, ...]:
    """Return the classes that start as a whole and of which a session is not created or not open yet.

    The last session wakes the scheduler before the class is recorded as complete: sessions count first.
    """
    gangs = {each.batch.id: each.batch for each in waiting if each.batch and each.batch.is_all_or_nothing}
    closed = {each.batch.id for each in booked_of(sessions) if each.batch and each.batch.id in gangs}
    members = Counter(each.batch.id for each in sessions if each.batch)
    for batch_id in gangs.keys() - closed:
        if members[batch_id] >= gangs[batch_id].size:
            continue
        batch = await records.batches.find(batch_id)
        if batch is not None and not batch.is_complete:
            closed.add(batch_id)
    return tuple(sorted(closed))


def _view(
    worker: Worker, records: Records, policies: Policies, caches: Caches | None, has_token: bool
) -> PlacementWorker:
    expected = _expected(worker, records, policies, caches, has_token)
    view = view_of(worker, early_at=expected.early, ready_at=expected.likely, has_fleet_token=has_token)
    is_overloaded = caches is not None and caches.metrics.is_overloaded(worker.id, records.clock.now())
    return msgspec.structs.replace(view, is_overloaded=True) if is_overloaded else view


def _template(template: WorkerTemplate, caches: Caches | None) -> PlacementTemplate:
    learned = caches.boot_times.expected(template.name) if caches is not None else None
    median, most = learned or (None, None)
    return replace(template_view(template), early_boot=median, boot=most)


def _expected(
    worker: Worker, records: Records, policies: Policies, caches: Caches | None, has_token: bool
) -> _Arrival:
    """When a worker that comes up is expected to take sessions; no time if it should have by now."""
    if worker.status is RUNNING and worker.cml.is_ready:
        if not is_licensing(worker, has_fleet_token=has_token):
            return _ANY_TIME
        done_at = (worker.license.changed_at or worker.status_since) + LICENSING
        return _Arrival(done_at, done_at)
    way = way_up(worker)
    if way is None:
        return _ANY_TIME
    median = most = policies.times.worker_resume
    if way.is_launch:
        learned = caches.boot_times.expected(worker.template_name) if caches is not None else None
        median, most = learned or (policies.times.worker_boot,) * 2
    likely = way.began_at + most
    return _Arrival(way.began_at + median, likely) if likely > records.clock.now() else _ANY_TIME


def _revision(snapshot: Snapshot) -> str:
    """Equal for equal snapshots, in whatever order their sets are held."""
    return hashlib.sha256(msgspec.json.encode(snapshot, order="deterministic")).hexdigest()[:16]
