"""The control plane's HTTP application: routes and errors."""

import math
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from lcm import VERSION
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessDenied, TooManyRequests
from lcm.control_plane.api import dashboard, internal, openapi, operations, public
from lcm.control_plane.api.middleware import (
    AccessMiddleware,
    Latency,
    access_problem,
    rate_problem,
    store_problem,
)
from lcm.control_plane.api.public.secret_keys import KeyRotated
from lcm.control_plane.api.public.sessions import SignInLink
from lcm.control_plane.api.services import Services
from lcm.control_plane.store.port import StoreUnavailable, WriteUnconfirmed
from lcm.domain import errors
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.license import LicenseDebt
from lcm.domain.telemetry import LabRecord
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Worker
from lcm.rest import (
    activity,
    lab_reports,
    lablet_access,
    lablet_reports,
    lablet_requests,
    lablets,
    labs,
    plans,
    scheduling,
    schemas,
    security,
    system,
)
from lcm.rest import fleet as fleet_schemas
from lcm.rest.access import BrowserSessions, TokenCreated, TokenList
from lcm.web.answers import MalformedBody, PlainRoute, install_openapi
from lcm.web.compression import Compressed
from lcm.web.operations import HealthView, InfoView, ProcessOperations, ReadyView
from lcm.web.problems import problem
from lcm.web.tracing import Traced

log = structlog.get_logger(__name__)


DESCRIPTION = """
Runs fleets of Cisco Modeling Labs workers on EC2. Requests set the desired state; controllers reconcile it.

People use a bearer token or the session cookie; controllers use `X-API-Key` on `/api/internal`.
Errors are RFC 9457 problem documents whose `detail` says what to do.
"""

_STRUCTS = (
    schemas.WorkerView, schemas.WorkerPage, schemas.WorkerRecords, schemas.Timeline, schemas.TemplateList,
    schemas.TemplateSource,
    schemas.RegionList, schemas.SessionView, schemas.SignInWays, schemas.StatusReport,
    schemas.RecordVersion, schemas.LaunchIntentRecorded, schemas.LaunchIntentWithdrawn,
    schemas.InstanceReport, schemas.CmlReport, schemas.LeadershipClaim, schemas.LeadershipGrant,
    schemas.CmlCredentials,
    schemas.IdleCheckRequest, schemas.IdleCheck, schemas.IdleStatus,
    schemas.ScaleUpRequest, schemas.AuditRecord, schemas.AuditPage, schemas.Explanation, schemas.CostReport,
    schemas.Resources, schemas.LoadHistory, schemas.LabList, schemas.Activity, schemas.LiveReports,
    schemas.LiveReceipt,
    schemas.MetricsReport, schemas.ActivityEvents, schemas.LabStatsReport, schemas.LabStateChange,
    schemas.WebSocketReport, schemas.LicenseReport, schemas.LicenseToken, schemas.LicenseDebts,
    schemas.LicenseSettings, LicenseDebt,
    fleet_schemas.BulkImport, fleet_schemas.BulkImportResult, fleet_schemas.Cleanup,
    fleet_schemas.CleanupResult, fleet_schemas.DiscoveryView,
    Worker, WorkerTemplate, HealthView, ReadyView, InfoView,
    activity.ActivityPage, system.ProcessReport, system.SystemView,
    TokenList, TokenCreated, BrowserSessions, schemas.CmlAccess, KeyRotated, SignInLink,
    security.SecurityAuditPage,
    LabletSession, Snapshot, lablets.LabletSessionRecords, lablets.LabletSessionView,
    lablets.LabletSessionPage, lablets.SessionHistory, lablets.PlacementOrders, lablets.PlacementResults,
    lablets.WaitingReport, lablets.SessionRejected, lablets.WindowsMoved, lablets.Unscheduled,
    lablet_reports.SessionMove, lablet_reports.ImportIntent, lablet_reports.LabImported,
    lablet_reports.ProgressReport, lablet_reports.ProgressReceipt, lablet_reports.LabCleaned,
    lablet_reports.AbandonRequest, lablet_reports.FleetView, lablet_reports.SessionProblem,
    lablet_reports.EvidenceCollected, lablets.EvidenceList,
    lablet_requests.NewSession, lablet_requests.NewBatch, lablet_requests.NewEnd,
    lablet_access.AccessLogin, lablet_access.SessionAccess, lablet_access.BatchAccess,
    scheduling.SessionCreated, scheduling.BatchCreated, scheduling.BatchView, scheduling.LabletAuditPage,
    scheduling.SessionExplanation, scheduling.SchedulingQueue,
    scheduling.PreviewRequest, scheduling.SchedulingPreview,
    scheduling.SchedulingCalendar, scheduling.PlacementPage, scheduling.PlacementReport,
    labs.LabPage, labs.LabAdoptionRequest, labs.LabRemoval,
    lab_reports.LabListingReport, lab_reports.LabListingReceipt,
    lab_reports.LabWork, lab_reports.LabRequestOutcome, lab_reports.LabGone, LabRecord,
    lab_reports.ConfigsExtracted,
    lab_reports.DefinitionsReport,
    lablet_requests.NewDefinition, lablet_requests.NextDefinition, lablet_requests.TopologyText,
    scheduling.LabletDefinitionView, scheduling.LabletDefinitionPage, scheduling.TopologyAnalysis,
    plans.PlanRequest, plans.FleetPlan, plans.WantedWorker, plans.WantedDefinition, plans.WantedClass,
)  # fmt: skip

_REFUSALS: dict[type[errors.RequestError], tuple[int, str, str]] = {
    errors.NotFound: (404, "not-found", "Resource not found"),
    errors.Conflict: (409, "conflict", "Conflict"),
    errors.PreconditionFailed: (412, "precondition-failed", "Changed meanwhile"),
    errors.PreconditionRequired: (428, "precondition-required", "If-Match required"),
    errors.NotReadyYet: (409, "not-ready-yet", "Not ready yet"),
    errors.NameTaken: (409, "name-taken", "Name taken"),
    errors.InstanceTaken: (409, "instance-taken", "Instance taken"),
    errors.KeyReused: (422, "key-reused", "Idempotency key reused"),
    errors.TooSoon: (429, "too-soon", "Requested too soon"),
    errors.MomentPassed: (422, "moment-passed", "Time is in the past"),
    errors.InvalidAddress: (422, "invalid-address", "Not an address of a worker"),
    errors.UnknownReference: (422, "unknown-reference", "Unknown reference"),
    errors.InvalidTopology: (422, "invalid-topology", "The topology cannot be run"),
    errors.InvalidDefinition: (422, "invalid-definition", "The definition cannot be stored"),
    errors.InvalidTimeslot: (422, "invalid-timeslot", "The timeslot cannot be booked"),
    errors.ImpossibleNeeds: (422, "impossible-needs", "No worker can ever run the lab"),
    errors.NoCapacityInSlot: (409, "no-capacity-in-slot", "No room in this timeslot"),
    errors.NextBooking: (409, "next-booking", "Another session is booked"),
    errors.NoFreePort: (409, "no-free-port", "No free port"),
    errors.PlacementRefused: (409, "placement-refused", "The worker does not take the session"),
    errors.Fenced: (409, "fenced", "No longer the leader"),
    errors.IllegalTransition: (409, "illegal-transition", "Not possible from this status"),
    errors.ActionRefused: (409, "illegal-transition", "Not possible from this status"),
}


def build_app(
    services: Services, process: ProcessOperations, rate: Buckets, *, is_local: bool = False
) -> FastAPI:
    """Return the application: all routes, error handlers and middleware, with this rate per principal."""
    app = _api()
    app.state.services = services
    app.state.operations = process
    app.state.rate = rate
    app.router.routes.extend((*dashboard.router.routes, *openapi.router.routes))
    _add_error_handlers(app)
    app.router.routes.sort(key=_route_priority)
    app.add_middleware(Compressed)
    latency = Latency(process.metrics.telemetry, services.control_plane.records.clock)
    app.add_middleware(
        AccessMiddleware, identity=services.identity, rate=rate, is_local=is_local, latency=latency
    )
    app.add_middleware(Traced, ids=process.metrics.telemetry.trace_ids)
    return app


def _route_priority(route: BaseRoute) -> tuple[bool, bool]:
    """Sort routes so that the ones controllers call most are matched first."""
    is_internal = getattr(route, "path", "").startswith("/api/internal/")
    return not isinstance(route, PlainRoute), not is_internal


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all operations, public and internal."""
    return _api().openapi()


def _api() -> FastAPI:
    app = FastAPI(
        title="LCM control plane",
        version=VERSION,
        description=DESCRIPTION,
        openapi_url=None,  # and no page of FastAPI's: they load scripts from elsewhere
    )
    for router in (*public.ROUTERS, *internal.ROUTERS, operations.router):
        # Not `include_router`: it adds nothing to routes with a full path, matches each request twice, and
        # builds every route again for each application.
        app.router.routes.extend(router.routes)
    install_openapi(app, _STRUCTS, openapi.describe_operations)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, errors.RequestError)
        status, kind, title = _REFUSALS[type(error)]
        log.info("request refused", kind=kind, detail=str(error))
        response = problem(status, kind, title, str(error), allowed=getattr(error, "allowed", ()))
        if isinstance(error, errors.TooSoon):
            response.headers["Retry-After"] = str(math.ceil(error.retry_after_seconds))
        return response

    async def denied(_: Request, error: Exception) -> Response:
        assert isinstance(error, AccessDenied)
        return access_problem(error)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _invalid([_field_error(item) for item in error.errors()])

    async def malformed(_: Request, error: Exception) -> Response:
        assert isinstance(error, MalformedBody)
        return _invalid(error.errors)

    async def too_many(_: Request, error: Exception) -> Response:
        assert isinstance(error, TooManyRequests)
        return rate_problem(error)

    async def unconfirmed(_: Request, error: Exception) -> Response:
        detail = (
            f"{error}: the write may have happened or may still happen; read the record before you repeat it"
        )
        return problem(503, "write-unconfirmed", "Outcome unknown", detail)

    async def store_unavailable(_: Request, error: Exception) -> Response:
        assert isinstance(error, StoreUnavailable)
        return store_problem(error)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 400:  # FastAPI's answer to a body that is not text
            return _invalid([schemas.FieldError(field="body", message="not valid JSON")])
        detail = (
            f"{request.method} {request.url.path}: {error.detail}; see /api/openapi.json for all operations"
        )
        return problem(error.status_code, "http", str(error.detail), detail)

    for refusal in _REFUSALS:
        app.add_exception_handler(refusal, refused)
    app.add_exception_handler(AccessDenied, denied)
    app.add_exception_handler(TooManyRequests, too_many)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(MalformedBody, malformed)
    app.add_exception_handler(WriteUnconfirmed, unconfirmed)
    app.add_exception_handler(StoreUnavailable, store_unavailable)
    app.add_exception_handler(HTTPException, http_error)


def _field_error(item: dict[str, Any]) -> schemas.FieldError:
    """Return a mistake that pydantic found, with the field as the sender wrote it."""
    if item["type"] == "json_invalid":
        return schemas.FieldError(field="body", message=f"not valid JSON: {item['ctx']['error']}")
    field = ".".join(str(part) for part in item["loc"] if part not in ("body", "query", "header"))
    return schemas.FieldError(field=field or "body", message=item["msg"].removeprefix("Value error, "))


def _invalid(fields: list[schemas.FieldError]) -> Response:
    what = "; ".join(f"{error.field}: {error.message}" for error in fields)
    return problem(
        422, "invalid", "Invalid request", f"correct these fields and send it again: {what}", errors=fields
    )
