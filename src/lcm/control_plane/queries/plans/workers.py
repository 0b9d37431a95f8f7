"""The steps of workers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.plans.steps import changes_of, judged, planned_request, refused
from lcm.control_plane.records.fleet_token import has_fleet_token
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.possibility import refuse_unknown_region
from lcm.domain.cost import BILLED
from lcm.domain.errors import RequestError, UnknownReference
from lcm.domain.lifecycle import FAILED, TERMINATED, TERMINATING, UNKNOWN, DesiredStatus
from lcm.domain.requests import request, retag
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Action, Worker
from lcm.rest.plans import FieldChange, PlannedRequest, PlannedStep, StepAction, WantedWorker
from lcm.rest.schemas import FieldError

KIND: Final = "worker"
_ACTIONS: Final = {"running": Action.START, "stopped": Action.STOP}

_LICENSING: Final[dict[bool, tuple[str, Any]]] = {True: ("POST", {}), False: ("DELETE", None)}


class WorkerPlans:
    """Compares documents with the workers at one moment."""

    def __init__(
        self,
        records: Records,
        policies: Policies,
        workers: Sequence[Worker],
        *,
        prices: dict[str, float],
        changed: Mapping[str, WorkerTemplate],
        file_set: str,
    ) -> None:
        self._records = records
        self._policies = policies
        self._prices = prices
        self._changed = changed
        self._file_set = file_set
        self._now = records.clock.now()
        oldest_first = sorted(workers, key=lambda worker: worker.created_at)
        self.living = {each.name: each for each in oldest_first if each.status is not TERMINATED}
        self._past = {each.name: each.id for each in oldest_first if each.status is TERMINATED}

    async def step(self, wanted: WantedWorker) -> PlannedStep:
        """Return what makes the worker as its document says."""
        worker = self.living.get(wanted.name)
        if worker is None:
            return await self._create(wanted)
        if worker.desired_status is DesiredStatus.TERMINATED or worker.status is TERMINATING:
            message = "a worker of this name is being deleted; apply again when it is gone"
            return refused(KIND, wanted.name, FieldError(field="name", message=message))
        errors = await self._refusals(worker, wanted)
        if errors:
            return refused(KIND, wanted.name, *errors)
        return self._change(worker, wanted)

    def delete(self, worker: Worker) -> PlannedStep:
        """Return the deletion of a worker and its disk."""
        if worker.desired_status is DesiredStatus.TERMINATED:
            return PlannedStep(
                kind=KIND, name=worker.name, action=StepAction.KEEP, reason="it is being deleted already"
            )
        return PlannedStep(
            kind=KIND,
            name=worker.name,
            action=StepAction.DELETE,
            requests=(planned_request("DELETE", f"/api/workers/{worker.id}", None),),
            usd_per_hour=-self._price(worker) if worker.status in BILLED else 0.0,
        )

    async def _create(self, wanted: WantedWorker) -> PlannedStep:
        errors = judged("aws_region", lambda: refuse_unknown_region(self._policies, wanted.aws_region))
        try:
            template = await self._template(wanted.template_name)
        except RequestError as error:
            errors.append(FieldError(field="template_name", message=str(error)))
        if errors:
            return refused(KIND, wanted.name, *errors)
        create = planned_request("POST", "/api/workers", self._body(wanted), self._past.get(wanted.name))
        requests = [create]
        is_stopped = wanted.desired_status == "stopped"
        if is_stopped:
            path = f"/api/workers/{wanted.name}/stop"
            requests.append(planned_request("POST", path, None, create.idempotency_key))
        return PlannedStep(
            kind=KIND,
            name=wanted.name,
            action=StepAction.CREATE,
            reason=f"of template {template.name}",
            requests=tuple(requests),
            usd_per_hour=0.0 if is_stopped else template.usd_per_hour,
        )

    async def _template(self, name: str) -> WorkerTemplate:
        """Return the template as it will be when the worker is created. Raises UnknownReference."""
        changed = self._changed.get(name)
        if changed is not None and changed.enabled:
            return changed
        if changed is not None:
            raise UnknownReference(f"template {name!r} is disabled by another document")
        return await self._records.templates.enabled(name)

    def _body(self, wanted: WantedWorker) -> dict[str, Any]:
        body: dict[str, Any] = {"name": wanted.name, "template_name": wanted.template_name}
        if wanted.aws_region is not None:
            body["aws_region"] = wanted.aws_region
        tags = dict(sorted((wanted.tags or {}).items()))
        return {**body, "tags": tags, "licensed": bool(wanted.licensed), "file_set": self._file_set}

    async def _refusals(self, worker: Worker, wanted: WantedWorker) -> list[FieldError]:
        """Return what cannot be changed of a worker that exists, by the rules of the requests."""
        now = self._now
        errors: list[FieldError] = []
        region = wanted.aws_region or worker.aws_region
        for field, before, after in (
            ("template_name", worker.template_name, wanted.template_name),
            ("aws_region", worker.aws_region, region),
        ):
            if before != after:
                message = f"it is {before!r} and a worker keeps it; delete the worker, or choose another name"
                errors.append(FieldError(field=field, message=message))
        if wanted.tags is not None:
            errors += judged("tags", lambda: retag(worker, wanted.tags or {}, by="", now=now))
        if _is_other_status(worker, wanted):
            action = _ACTIONS[wanted.desired_status or ""]
            errors += judged("desired_status", lambda: request(worker, action, by="", now=now))
        if wanted.licensed and not worker.license.declared and not await has_fleet_token(self._records):
            message = "no license token is known; set PUT /api/settings/license"
            errors.append(FieldError(field="licensed", message=message))
        return errors

    def _change(self, worker: Worker, wanted: WantedWorker) -> PlannedStep:
        changes: list[FieldChange] = []
        requests: list[PlannedRequest] = []

        def differ(found: list[FieldChange], method: str, action: str, body: Any = None) -> None:
            if found:
                path = f"/api/workers/{worker.id}/{action}"
                changes.extend(found)
                # The generation counts changes of the desired state: what is undone is requested anew.
                requests.append(planned_request(method, path, body, worker.generation))

        if wanted.tags is not None:
            tags = dict(sorted(wanted.tags.items()))
            differ(changes_of("tags", worker.tags, tags), "PUT", "tags", {"tags": tags})
        if wanted.licensed is not None:
            found = changes_of("licensed", worker.license.declared, wanted.licensed)
            method, body = _LICENSING[wanted.licensed]
            differ(found, method, "license", body)
        price = 0.0
        if _is_other_status(worker, wanted):
            desired = wanted.desired_status or ""
            found = changes_of("desired_status", str(worker.desired_status), desired)
            differ(found, "POST", _ACTIONS[desired])
            price = self._price_of_change(worker, desired)
        return PlannedStep(
            kind=KIND,
            name=worker.name,
            action=StepAction.CHANGE if changes else StepAction.KEEP,
            reason=_drift(worker),
            changes=tuple(changes),
            requests=tuple(requests),
            usd_per_hour=price,
        )

    def _price_of_change(self, worker: Worker, desired: str) -> float:
        is_billed = worker.status in BILLED
        if desired == "running":
            return 0.0 if is_billed else self._price(worker)
        return -self._price(worker) if is_billed else 0.0

    def _price(self, worker: Worker) -> float:
        return self._prices.get(worker.template_name, 0.0)


def _is_other_status(worker: Worker, wanted: WantedWorker) -> bool:
    return wanted.desired_status not in (None, str(worker.desired_status))


def _drift(worker: Worker) -> str:
    """Say what no request of a document can cure."""
    return f"it is {worker.status}: {worker.status_reason}" if worker.status in (FAILED, UNKNOWN) else ""
