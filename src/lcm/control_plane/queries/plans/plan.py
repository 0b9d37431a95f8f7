"""The plan of a whole fleet, from documents that are read already. It is a question: nothing is changed."""

from collections.abc import AsyncIterator, Sequence
from typing import TypeGuard

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.cost import cost_report
from lcm.control_plane.queries.plans.lablets import CLASS, DEFINITION, ClassPlans, DefinitionPlans
from lcm.control_plane.queries.plans.steps import refused
from lcm.control_plane.queries.plans.templates import KIND as TEMPLATE
from lcm.control_plane.queries.plans.templates import TemplatePlans
from lcm.control_plane.queries.plans.workers import KIND as WORKER
from lcm.control_plane.queries.plans.workers import WorkerPlans
from lcm.control_plane.records.groups import Records
from lcm.rest.plans import (
    KINDS,
    FleetPlan,
    PlannedStep,
    PlanRequest,
    StepAction,
    Wanted,
    WantedClass,
    WantedDefinition,
    WantedTemplate,
)
from lcm.rest.schemas import FieldError

Read = Wanted | PlannedStep
"""A document; or the step that refuses it; or, of what only goes, the name."""
_ORDER = {kind: place for place, kind in enumerate(KINDS)}


async def plan_fleet(
    records: Records, policies: Policies, request: PlanRequest, documents: Sequence[Read]
) -> FleetPlan:
    """Return the requests that make the fleet as the documents say, or that delete what they name."""
    plans = await _Plans.of(records, policies, request.file_set)
    numbered = _without_repeats(documents)
    if request.goal == "delete":
        steps = [step async for step in plans.deletions(numbered)]
    else:
        created = sorted(numbered, key=lambda each: _ORDER.get(_name_of(each[1])[0], 0))
        steps = [replace(await plans.step(document), document=place) for place, document in created]
        if request.prune:
            steps += plans.pruned({_name_of(document) for document in documents})
    now = (await cost_report(records, policies)).total.usd_per_hour
    change = sum(step.usd_per_hour for step in steps)
    return FleetPlan(
        steps=tuple(steps), usd_per_hour_now=now, usd_per_hour_after=max(round(now + change, 6), 0.0)
    )


class _Plans:
    """The plans of all kinds."""

    def __init__(
        self,
        templates: TemplatePlans,
        workers: WorkerPlans,
        definitions: DefinitionPlans,
        classes: ClassPlans,
        file_set: str,
    ) -> None:
        self._templates = templates
        self._workers = workers
        self._definitions = definitions
        self._classes = classes
        self._file_set = file_set

    @classmethod
    async def of(cls, records: Records, policies: Policies, file_set: str) -> "_Plans":
        prices = {each.name: each.usd_per_hour for each in await records.templates.list_all()}
        workers = await records.workers.list_all()
        definitions = DefinitionPlans(records, await records.definitions.list_all(), file_set=file_set)
        batches, sessions = await records.batches.list_all(), await records.sessions.list_all()
        templates = TemplatePlans(records)
        changed = templates.after
        return cls(
            templates,
            WorkerPlans(records, policies, workers, prices=prices, changed=changed, file_set=file_set),
            definitions,
            ClassPlans(records, policies, batches, sessions, definitions, file_set=file_set),
            file_set,
        )

    async def step(self, document: Read) -> PlannedStep:
        if isinstance(document, PlannedStep):
            return document
        if isinstance(document, WantedTemplate):
            return await self._templates.step(document)
        if isinstance(document, WantedDefinition):
            return self._definitions.step(document)
        if isinstance(document, WantedClass):
            return await self._classes.step(document)
        return await self._workers.step(document)

    def pruned(self, named: set[tuple[str, str]]) -> list[PlannedStep]:
        """Return the deletion of what was created from this set and is in no document."""
        steps = [
            *(self._classes.delete(each) for each in self._classes.live() if each.file_set == self._file_set),
            *(
                self._definitions.delete(name)
                for name, each in self._definitions.newest.items()
                if each.file_set == self._file_set
            ),
            *(
                self._workers.delete(each)
                for each in self._workers.living.values()
                if each.file_set == self._file_set
            ),
        ]
        gone = [step for step in steps if (step.kind, step.name) not in named]
        return [replace(step, reason=step.reason or "it is in no document of its set") for step in gone]

    async def deletions(self, numbered: Sequence[tuple[int, Read]]) -> AsyncIterator[PlannedStep]:
        """Yield the deletion of what the documents name: what needs others before those."""
        for place, document in sorted(numbered, key=lambda each: -_ORDER.get(_name_of(each[1])[0], 0)):
            kind, name = _name_of(document)
            if _is_refused(document):
                yield replace(document, document=place)
                continue
            for step in await self._deleted(kind, name) or [
                PlannedStep(kind=kind, name=name, action=StepAction.KEEP, reason="there is none")
            ]:
                yield replace(step, document=place)

    async def _deleted(self, kind: str, name: str) -> list[PlannedStep]:
        if kind == TEMPLATE:
            step = await self._templates.delete(name)
            return [step] if step is not None else []
        if kind == WORKER and name in self._workers.living:
            return [self._workers.delete(self._workers.living[name])]
        if kind == DEFINITION and name in self._definitions.newest:
            return [self._definitions.delete(name)]
        if kind == CLASS:
            return [self._classes.delete(each) for each in self._classes.live() if each.name == name]
        return []


def _without_repeats(documents: Sequence[Read]) -> list[tuple[int, Read]]:
    """Return the documents with their position; the second one of a name is refused."""
    seen: dict[tuple[str, str], int] = {}
    numbered: list[tuple[int, Read]] = []
    for place, document in enumerate(documents):
        kind, name = _name_of(document)
        if (kind, name) in seen and not _is_refused(document):
            message = f"another document has the {kind} {name!r} already"
            document = refused(kind, name, FieldError(field="name", message=message))
        seen.setdefault((kind, name), place)
        numbered.append((place, document))
    return numbered


def _is_refused(document: Read) -> TypeGuard[PlannedStep]:
    return isinstance(document, PlannedStep) and document.action is StepAction.REFUSE


def _name_of(document: Read) -> tuple[str, str]:
    if isinstance(document, PlannedStep):
        return document.kind, document.name
    return next(kind for kind, struct in KINDS.items() if isinstance(document, struct)), document.name
