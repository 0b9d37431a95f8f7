"""Workers, for people. Actions answer 202 at once; effects follow and are published on the event stream."""

import re
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, ConfigDict, Field
from starlette.responses import Response

from lcm.control_plane.api.accepted import INTENT, accepted
from lcm.control_plane.api.bodies import RequestBody
from lcm.control_plane.api.dependencies import Admin, Given, Keyed, Operator, Plane, Viewer
from lcm.control_plane.api.references import WorkerRef
from lcm.control_plane.commands.create_worker import create_worker
from lcm.control_plane.commands.delete_worker import delete_worker
from lcm.control_plane.commands.request_action import request_action, request_refresh, request_tags
from lcm.control_plane.queries.cml_access import cml_access
from lcm.control_plane.queries.load_history import load_history
from lcm.control_plane.queries.workers import list_workers, page_of_workers
from lcm.control_plane.records.preconditions import etag
from lcm.domain.launch import OWNERSHIP_TAGS
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.load_history import HistoryRange
from lcm.domain.template import NAME_PATTERN
from lcm.domain.worker import Action
from lcm.rest.schemas import (
    Activity,
    CmlAccess,
    LabList,
    LoadHistory,
    Resources,
    Timeline,
    WorkerPage,
    WorkerView,
)
from lcm.web.answers import answer, documented

router = APIRouter(prefix="/api/workers", tags=["workers"])

_CML = documented(CmlAccess, problems=[404, 409])


def _is_host_name(name: str) -> str:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError("use 1 to 63 lower-case letters, digits and hyphens, no hyphen at either end")
    return name


def _not_reserved(key: str) -> str:
    if key.lower().startswith("aws:"):
        raise ValueError("tag keys that begin with 'aws:' are reserved by AWS")
    if key in OWNERSHIP_TAGS:
        raise ValueError(f"{key} marks the owner of the instance; only LCM sets it")
    return key


TagKey = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]+$"), AfterValidator(_not_reserved)
]
TagValue = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f]*$")]


class NewWorker(RequestBody):
    """The worker to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "networking-101", "template_name": "metal"}]},
    )

    name: Annotated[str, AfterValidator(_is_host_name)] = Field(
        description="1 to 63 lower-case letters, digits and hyphens; unique among live workers.",
        json_schema_extra={"pattern": NAME_PATTERN},
    )
    template_name: str = Field(min_length=1, max_length=63, description="A name of /api/worker-templates.")
    aws_region: str | None = Field(
        None, max_length=63, description="A name of /api/regions; the default region if left out."
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, max_length=40, description="EC2 tags besides LCM's own."
    )
    licensed: bool = Field(
        False, description="Register its CML automatically, with the token of /api/settings/license."
    )
    file_set: str | None = Field(
        None,
        max_length=63,
        pattern=NAME_PATTERN,
        description="The set of fleet files that it belongs to; `lcm apply` sets it.",
    )


class Tags(RequestBody):
    """All tags that the worker's instance should have."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tags": {"team": "networking", "course": "ccna"}}]}
    )

    tags: dict[TagKey, TagValue] = Field(max_length=40, description="EC2 tags besides LCM's own.")


@router.get("", summary="List workers", **documented(WorkerPage, problems=[422]))
async def list_all(
    _: Viewer,
    plane: Plane,
    status: Annotated[list[WorkerStatus] | None, Query(description="Only these statuses.")] = None,
    aws_region: Annotated[str | None, Query(max_length=63)] = None,
    include_terminated: bool = False,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[str | None, Query(max_length=200, description="`next` of the page before.")] = None,
) -> Response:
    """Workers by name; terminated ones only on request."""
    workers = await list_workers(
        plane.records, statuses=status or (), aws_region=aws_region, include_terminated=include_terminated
    )
    return answer(page_of_workers(workers, plane.caches.worker_views, limit=limit, after=after))


@router.post("", summary="Create a worker", **documented(WorkerView, 202, "Accepted.", problems=[409, 422]))
async def create(
    body: NewWorker,
    person: Admin,
    plane: Plane,
    keyed: Keyed,
) -> Response:
    """Record a worker; the controller launches its instance.

    With an `Idempotency-Key` a repeated request returns the same worker and never creates a second one.
    """
    worker = await create_worker(
        plane.records,
        plane.policies,
        name=body.name,
        template_name=body.template_name,
        aws_region=body.aws_region,
        tags=body.tags,
        licensed=body.licensed,
        file_set=body.file_set,
        by=person.name,
        request=keyed,
    )
    return accepted(worker)


@router.get("/{worker_id}", summary="Get a worker", **documented(WorkerView, problems=[404]))
async def get(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """The `ETag` names this version; send it as `If-Match` to act on this version only."""
    worker = await plane.records.workers.get(worker_id)
    return answer(WorkerView.of(worker), etag=etag(worker.version))


@router.get(
    "/{worker_id}/timeline", summary="Get a worker's timeline", **documented(Timeline, problems=[404])
)
async def timeline(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """Every status change with its actor and reason, oldest first."""
    worker = await plane.records.workers.get(worker_id)
    return answer(Timeline(items=worker.state_history))


@router.get("/{worker_id}/resources", summary="Get a worker's load", **documented(Resources, problems=[404]))
async def resources(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """The newest sample of each source and the last points for a chart; empty unless the worker runs."""
    worker = await plane.records.workers.get(worker_id)
    return answer(
        Resources(
            worker_id=worker.id,
            samples=plane.caches.metrics.samples_of(worker_id),
            points=plane.caches.metrics.points_of(worker_id),
        )
    )


@router.get(
    "/{worker_id}/history",
    summary="Get a worker's load history",
    **documented(LoadHistory, problems=[404, 422]),
)
async def history(
    worker_id: WorkerRef,
    _: Viewer,
    plane: Plane,
    span: Annotated[HistoryRange, Query(alias="range", description="How far back.")] = HistoryRange.HOUR,
) -> Response:
    """Means of intervals of 10 seconds, 2 minutes or 15 minutes. They survive a stop of the worker and a
    restart of LCM, and are removed when the worker is terminated."""
    return answer(await load_history(plane.records, worker_id, span))


@router.get("/{worker_id}/labs", summary="List a worker's labs", **documented(LabList, problems=[404]))
async def labs(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """The labs on a worker and their nodes, as last observed, by title."""
    await plane.records.workers.get(worker_id)
    return answer(LabList(items=await plane.records.labs.of(worker_id)))


@router.get("/{worker_id}/cml", summary="Get access to a worker's CML", **_CML)
async def cml(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    """Its present address and the digest of its certificate. The password is never shown."""
    return answer(cml_access(await plane.records.workers.get(worker_id), plane.policies))


@router.get(
    "/{worker_id}/activity", summary="Get a worker's activity", **documented(Activity, problems=[404])
)
async def activity(worker_id: WorkerRef, _: Viewer, plane: Plane) -> Response:
    worker = await plane.records.workers.get(worker_id)
    return answer(
        Activity(
            worker_id=worker.id,
            last_activity_at=worker.activity.last_at,
            last_activity_check_at=worker.activity.checked_at,
            recent_activity_events=worker.activity.recent_events,
        )
    )


@router.post("/{worker_id}/start", summary="Start a worker", **INTENT)
async def start(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    return accepted(
        await request_action(plane.records, worker_id, Action.START, by=person.name, preconditions=given)
    )


@router.post("/{worker_id}/stop", summary="Stop a worker", **INTENT)
async def stop(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    """The disk is kept; the worker can be started again."""
    return accepted(
        await request_action(plane.records, worker_id, Action.STOP, by=person.name, preconditions=given)
    )


@router.post("/{worker_id}/retry", summary="Retry a failed worker", **INTENT)
async def retry(worker_id: WorkerRef, person: Operator, plane: Plane, given: Given) -> Response:
    return accepted(
        await request_action(plane.records, worker_id, Action.RETRY, by=person.name, preconditions=given)
    )


@router.post(
    "/{worker_id}/refresh",
    summary="Refresh a worker",
    **INTENT,
)
async def refresh(worker_id: WorkerRef, _: Operator, plane: Plane, given: Given) -> Response:
    """The controller observes everything about it again; at most every ten seconds."""
    return accepted(await request_refresh(plane.records, worker_id, preconditions=given))


@router.put("/{worker_id}/tags", summary="Tag a worker", **INTENT)
async def tags(worker_id: WorkerRef, body: Tags, person: Operator, plane: Plane, given: Given) -> Response:
    """Replaces all tags that LCM set. The instance gets them while it runs, and loses the ones that are not
    listed; tags set outside LCM are left alone."""
    return accepted(
        await request_tags(plane.records, worker_id, body.tags, by=person.name, preconditions=given)
    )


@router.delete("/{worker_id}", summary="Terminate a worker", **INTENT)
async def delete(
    worker_id: WorkerRef,
    person: Admin,
    plane: Plane,
    given: Given,
    force: Annotated[bool, Query(description="Purge the record too.")] = False,
) -> Response:
    """The instance and its disk are destroyed; the record stays for the audit, unless `force` is set.

    A record is never purged before its instance is known to be gone: an instance without a record costs money
    unnoticed.
    """
    return accepted(
        await delete_worker(plane.records, worker_id, force=force, by=person.name, preconditions=given)
    )
