"""The controllers' client of the control plane: the only way in which a controller changes a record."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import msgspec

from lcm.core import tracing
from lcm.core.network import plainly
from lcm.core.secret_strength import keys_in
from lcm.core.timeouts import timeout
from lcm.core.tls import ClientContext, trust_of
from lcm.domain.discovery import DiscoverySettings, FoundInstance
from lcm.domain.errors import Conflict, Fenced, IllegalTransition, NotFound, RequestError, Unreachable
from lcm.domain.idle import ControllerTerms
from lcm.domain.launch import LaunchSpec, WorkerId
from lcm.domain.license import LicenseOperation
from lcm.domain.lifecycle import WorkerStatus
from lcm.domain.readiness import CmlAttempt
from lcm.domain.scaling import AuditEvent
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import CmlHealth, CmlLicense, Instance, SystemInfo, Worker
from lcm.rest.fleet import BulkImport, BulkImportResult, Cleanup, CleanupResult, DiscoveryView
from lcm.rest.schemas import (
    API_KEY_HEADER,
    EPOCH_HEADER,
    PROBLEM_TYPE_PREFIX,
    SERVICE_HEADER,
    AuditRecord,
    CmlCredentials,
    CmlReport,
    IdleCheck,
    IdleCheckRequest,
    InstanceReport,
    LaunchIntentRecorded,
    LaunchIntentWithdrawn,
    LeadershipClaim,
    LeadershipGrant,
    LicenseReport,
    LicenseToken,
    LiveReceipt,
    LiveReports,
    Problem,
    RecordVersion,
    StatusReport,
    WebSocketReport,
    WorkerRecords,
)
from lcm.rest.system import ProcessReport

_worker = msgspec.json.Decoder(Worker)
_problem = msgspec.json.Decoder(Problem)


class Transport(Protocol):
    """Sends a request to the control plane and returns its answer."""

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        """Return status and body. Raises Unreachable without an answer; a write may have happened."""
        ...


class HttpTransport:
    """Use as `async with`. Raises Unreachable after the timeout."""

    def __init__(self, url: str, timeout_seconds: float = 5.0, tls: ClientContext | None = None) -> None:
        """Without `tls` certificates are checked against the system's authorities."""
        self._url = url.rstrip("/")
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        assert self._session is not None, "use the transport as a context manager"
        try:
            async with (
                timeout(self._timeout_seconds),
                self._session.request(
                    method, self._url + path, data=body, headers=headers, ssl=trust_of(self._tls)
                ) as response,
            ):
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"control plane at {self._url}: {plainly(error)}") from error


class ControlPlaneClient:
    """What a controller reads and reports. `epoch` returns the epoch that every write carries.

    A 5xx raises Unreachable: a write may have happened. A refusal raises the error of its problem type. Of
    several keys by commas the first is sent.
    """

    def __init__(self, transport: Transport, api_key: str, service: str, epoch: Callable[[], int]) -> None:
        self._transport = transport
        key, *_ = (*keys_in(api_key), "")
        self._headers = {API_KEY_HEADER: key, SERVICE_HEADER: service}
        self._service = service
        self._epoch = epoch

    async def list_resources(self, *, include_terminated: bool = False) -> list[Worker]:
        """Return every worker, terminated ones only on request."""
        body = await self._call(
            "GET", "/workers?include_terminated=true" if include_terminated else "/workers"
        )
        return msgspec.json.decode(body, type=WorkerRecords).items

    async def fetch_single_resource(self, worker_id: str) -> Worker | None:
        try:
            return _worker.decode(await self._call("GET", f"/workers/{worker_id}"))
        except NotFound:
            return None

    async def get_worker_template(self, name: str) -> WorkerTemplate | None:
        try:
            body = await self._call("GET", f"/worker-templates/by-name/{name}")
        except NotFound:
            return None
        return msgspec.json.decode(body, type=WorkerTemplate)

    async def claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None = None
    ) -> int:
        return (await self._claim_leadership(cluster_id, revision, instance_id, terms)).epoch

    async def _claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None
    ) -> LeadershipGrant:
        claim = LeadershipClaim(
            service=self._service,
            cluster_id=cluster_id,
            revision=revision,
            instance_id=instance_id,
            terms=terms,
        )
        return msgspec.json.decode(await self._call("POST", "/leadership", claim), type=LeadershipGrant)

    async def update_status(
        self,
        worker: Worker,
        status: WorkerStatus,
        reason: str,
        *,
        observed: bool = False,
        instance: Instance | None = None,
    ) -> Worker:
        """Report the status of exactly the version that was read."""
        return await self._report(
            worker.id,
            "status",
            StatusReport(
                status=status,
                reason=reason,
                expected_version=worker.version,
                observed=observed,
                instance=instance,
            ),
        )

    async def verify(self, worker: Worker) -> Worker:
        return await self._report(worker.id, "verify", RecordVersion(expected_version=worker.version))

    async def record_launch_intent(self, worker: Worker, spec: LaunchSpec) -> Worker:
        return await self._report(
            worker.id, "launch-intent", LaunchIntentRecorded(spec=spec, expected_version=worker.version)
        )

    async def withdraw_launch_intent(self, worker: Worker, reason: str, *, refused: bool = False) -> Worker:
        withdrawal = LaunchIntentWithdrawn(reason=reason, expected_version=worker.version, refused=refused)
        return await self._report(worker.id, "launch-intent/withdraw", withdrawal)

    async def report_instance(self, worker: Worker, instance: Instance) -> Worker:
        return await self._report(
            worker.id, "ec2-details", InstanceReport(instance=instance, expected_version=worker.version)
        )

    async def report_cml(
        self,
        worker: Worker,
        *,
        ready: bool,
        version: str | None,
        certificate_sha256: str | None,
        system_info: SystemInfo | None,
        attempt: CmlAttempt | None = None,
    ) -> Worker:
        return await self._report(
            worker.id,
            "cml-data",
            CmlReport(
                ready=ready,
                version=version,
                certificate_sha256=certificate_sha256,
                system_info=system_info,
                attempt=attempt,
            ),
        )

    async def report_certificate(self, worker: Worker, presented_sha256: str) -> Worker:
        """Report the certificate that CML presents instead of the pinned one."""
        report = CmlReport(ready=worker.cml.is_ready, certificate_sha256=presented_sha256)
        return await self._report(worker.id, "cml-data", report)

    async def report_cml_health(
        self, worker: Worker, health: CmlHealth | None, license_: CmlLicense | None
    ) -> Worker:
        """Report health and license that CML returns after a login; None leaves the stored value."""
        report = CmlReport(
            ready=worker.cml.is_ready,
            health=health,
            license=license_,
            license_changed_at=worker.license.changed_at,
        )
        return await self._report(worker.id, "cml-data", report)

    async def report_worker_metrics(self, reports: LiveReports) -> LiveReceipt:
        """Report load, labs and activity of all workers at once."""
        body = await self._call("POST", "/workers/metrics", reports)
        return msgspec.json.decode(body, type=LiveReceipt)

    async def report_ws_status(self, worker_id: WorkerId, report: WebSocketReport) -> Worker:
        return await self._report(worker_id, "ws-status", report)

    async def detect_worker_idle(self, worker: Worker, request: IdleCheckRequest) -> IdleCheck:
        body = await self._call("POST", f"/workers/{worker.id}/detect-idle", request)
        return msgspec.json.decode(body, type=IdleCheck)

    async def drain_worker(self, worker: Worker) -> Worker:
        return _worker.decode(await self._call("POST", f"/workers/{worker.id}/drain"))

    async def record_scaling_audit(self, event: AuditEvent, reason: str, worker_id: WorkerId) -> None:
        await self._call(
            "POST", "/scaling/audit", AuditRecord(event=event, reason=reason, worker_id=worker_id)
        )

    async def report_license(
        self, worker: Worker, step: str, operation: LicenseOperation, report: LicenseReport
    ) -> Worker:
        noun = "registration" if operation is LicenseOperation.REGISTER else "deregistration"
        return await self._report(worker.id, f"license/{step}-{noun}", report)

    async def get_license_token(self, worker: Worker) -> LicenseToken:
        body = await self._call("GET", f"/workers/{worker.id}/license-token")
        return msgspec.json.decode(body, type=LicenseToken)

    async def get_cml_login(self, worker_id: WorkerId) -> CmlCredentials:
        body = await self._call("GET", f"/workers/{worker_id}/cml-login")
        return msgspec.json.decode(body, type=CmlCredentials)

    async def get_discovery_settings(self) -> DiscoverySettings:
        body = await self._call("GET", "/settings/discovery")
        return msgspec.json.decode(body, type=DiscoveryView).settings()

    async def bulk_import(self, found: Sequence[FoundInstance]) -> BulkImportResult:
        body = await self._call("POST", "/workers/bulk-import", BulkImport(instances=list(found)))
        return msgspec.json.decode(body, type=BulkImportResult)

    async def clean_up(self, cleanup: Cleanup) -> CleanupResult:
        body = await self._call("POST", "/workers/cleanup", cleanup)
        return msgspec.json.decode(body, type=CleanupResult)

    async def report_process(self, report: ProcessReport) -> None:
        await self._call("POST", "/processes", report)

    async def _report(self, worker_id: WorkerId, what: str, report: msgspec.Struct) -> Worker:
        return _worker.decode(await self._call("POST", f"/workers/{worker_id}/{what}", report))

    async def _call(
        self,
        method: str,
        path: str,
        report: msgspec.Struct | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        headers = {**self._headers, EPOCH_HEADER: str(self._epoch()), **(headers or {})}
        if (work := tracing.current()) is not None:
            headers[tracing.TRACEPARENT_HEADER] = work.traceparent
        body = msgspec.json.encode(report) if report is not None else None
        status, answer = await self._transport.send(method, f"/api/internal{path}", headers, body)
        if status < 400:
            return answer
        raise self._refusal(status, answer)

    def _refusal(self, status: int, answer: bytes) -> Exception:
        return _error_of(status, answer)


def _error_of(status: int, answer: bytes) -> Exception:
    """Return the domain error of a refusal; an answer that cannot be decoded is Unreachable."""
    try:
        problem = _problem.decode(answer)
    except msgspec.MsgspecError:
        return Unreachable(f"control plane answered {status} without a reason")
    kind = problem.type.removeprefix(PROBLEM_TYPE_PREFIX)
    refusals: dict[str, Callable[[str], Any]] = {
        "not-found": NotFound,
        "conflict": Conflict,
        "fenced": Fenced,
    }
    if kind in refusals:
        refusal: Exception = refusals[kind](problem.detail)
        return refusal
    if kind == "illegal-transition":
        return IllegalTransition("its present status", problem.detail, problem.allowed)
    if status >= 500 or status in (401, 403, 429):
        return Unreachable(f"control plane: {problem.detail}")
    return RequestError(problem.detail)
