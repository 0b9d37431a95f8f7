"""The steps of lablet definitions and classes."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lcm.control_plane.policies import Policies
from lcm.control_plane.queries.forecast import forecast, refuse_overbooking
from lcm.control_plane.queries.plans.steps import changes_of, planned_request, refused
from lcm.control_plane.records.definitions import SHOWN, StoredDefinition, sort_key
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.possibility import refuse_impossible
from lcm.domain.errors import RequestError
from lcm.domain.lablet.batch import LabletBatch
from lcm.domain.lablet.definition import (
    NO_OPTIONS,
    DefinitionStatus,
    LabletDefinition,
    new_definition,
    next_version,
    topology_hash,
)
from lcm.domain.lablet.session import LabletSession, create_session, lab_lead
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lablet.topology import analyse
from lcm.rest.plans import FieldChange, PlannedStep, StepAction, WantedClass, WantedDefinition
from lcm.rest.schemas import FieldError

DEFINITION: Final = "definition"
CLASS: Final = "class"
SHOWN_OF_HASH: Final = 12


class DefinitionPlans:
    """Compares documents with the definitions at one moment, and keeps what they become for the classes."""

    def __init__(self, records: Records, stored: Sequence[StoredDefinition], *, file_set: str) -> None:
        self._now = records.clock.now()
        self._file_set = file_set
        oldest_first = sorted(stored, key=lambda each: sort_key(each.definition))
        self._last = {each.definition.name: each for each in oldest_first}
        self._shown = [each for each in oldest_first if each.definition.status in SHOWN]
        self.newest = {each.definition.name: each for each in self._shown}
        self.active = {
            each.definition.name: each.definition
            for each in self._shown
            if each.definition.status is DefinitionStatus.ACTIVE
        }
        """By name; a definition that is to be created or changed as it will be."""

    def step(self, wanted: WantedDefinition) -> PlannedStep:
        """Return what makes the definition as its document says."""
        before = self.newest.get(wanted.name)
        try:
            return self._create(wanted) if before is None else self._change(before, wanted)
        except RequestError as error:
            return refused(DEFINITION, wanted.name, FieldError(field="lab_yaml", message=str(error)))

    def delete(self, name: str) -> PlannedStep:
        """Return the deletion of all versions of a name."""
        versions = [each.id for each in self._shown if each.definition.name == name]
        return PlannedStep(
            kind=DEFINITION,
            name=name,
            action=StepAction.DELETE,
            requests=tuple(
                planned_request("DELETE", f"/api/lablet-definitions/{each}", None) for each in versions
            ),
        )

    def _create(self, wanted: WantedDefinition) -> PlannedStep:
        last = self._last.get(wanted.name)
        options = wanted.options or NO_OPTIONS
        definition = new_definition(
            wanted.lab_yaml,
            analyse(wanted.lab_yaml),
            definition_id="",
            name=wanted.name,
            owner="",
            now=self._now,
            version=_after(last.definition.version) if last is not None else "1.0.0",
            options=options,
        )
        self.active[wanted.name] = definition
        body = {
            "name": wanted.name,
            "version": definition.version,
            "lab_yaml": wanted.lab_yaml,
            "options": options,
            "file_set": self._file_set,
        }
        request = planned_request(
            "POST", "/api/lablet-definitions", body, last.id if last is not None else None
        )
        return PlannedStep(
            kind=DEFINITION,
            name=wanted.name,
            action=StepAction.CREATE,
            reason=f"version {definition.version}",
            requests=(request,),
        )

    def _change(self, before: StoredDefinition, wanted: WantedDefinition) -> PlannedStep:
        known = before.definition
        options = wanted.options or known.options
        changes = _changes(known, wanted, options)
        if not changes:
            return PlannedStep(kind=DEFINITION, name=wanted.name, action=StepAction.KEEP)
        after = next_version(
            known,
            wanted.lab_yaml,
            analyse(wanted.lab_yaml),
            definition_id=known.id,
            by="",
            now=self._now,
            options=options,
        )
        self.active[wanted.name] = after
        body = {"lab_yaml": wanted.lab_yaml, "options": options}
        return PlannedStep(
            kind=DEFINITION,
            name=wanted.name,
            action=StepAction.CHANGE,
            reason=f"version {known.version} is replaced by {after.version}",
            changes=tuple(changes),
            requests=(planned_request("PUT", f"/api/lablet-definitions/{before.id}", body),),
        )


def _changes(known: LabletDefinition, wanted: WantedDefinition, options: Any) -> list[FieldChange]:
    hashes = [each[:SHOWN_OF_HASH] for each in (known.lab_yaml_hash, topology_hash(wanted.lab_yaml))]
    return [
        *changes_of("status", str(known.status), str(DefinitionStatus.ACTIVE)),
        *changes_of("lab_yaml", f"sha256 {hashes[0]}", f"sha256 {hashes[1]}"),
        *changes_of("options", known.options, options),
    ]


def _after(version: str) -> str:
    """Return the version for a name of which all versions are deleted: theirs are used up."""
    major, minor, _ = version.split(".")
    return f"{major}.{int(minor) + 1}.0"


class ClassPlans:
    """Compares documents with the classes at one moment. A class is booked once and never changed."""

    def __init__(
        self,
        records: Records,
        policies: Policies,
        batches: Sequence[LabletBatch],
        sessions: Sequence[LabletSession],
        definitions: DefinitionPlans,
        *,
        file_set: str,
    ) -> None:
        self._records = records
        self._policies = policies
        self._definitions = definitions
        self._file_set = file_set
        self._now = records.clock.now()
        self._with_sessions = {
            each.batch.id for each in sessions if each.batch is not None and not each.is_ended
        }
        self._batches = sorted(batches, key=lambda batch: batch.created_at)

    def live(self) -> list[LabletBatch]:
        """Return the classes that are not over."""
        return [batch for batch in self._batches if batch.end_asked_at is None and not self._is_over(batch)]

    def _is_over(self, batch: LabletBatch) -> bool:
        if batch.timeslot is not None:
            return batch.timeslot.end <= self._now
        return batch.is_complete and batch.id not in self._with_sessions

    async def step(self, wanted: WantedClass) -> PlannedStep:
        """Return what books the class as its document says."""
        try:
            timeslot = wanted.timeslot.booked()
        except RequestError as error:
            return refused(CLASS, wanted.name, FieldError(field="timeslot", message=str(error)))
        if timeslot.end <= self._now:
            return PlannedStep(
                kind=CLASS, name=wanted.name, action=StepAction.KEEP, reason="its timeslot is over"
            )
        named = [batch for batch in self.live() if batch.name == wanted.name]
        if named:
            booked = next((batch for batch in named if batch.timeslot == timeslot), named[0])
            return _unchanged(booked, wanted, timeslot)
        return await self._create(wanted, timeslot)

    def delete(self, batch: LabletBatch) -> PlannedStep:
        """Return the end of a class."""
        path = f"/api/lablet-batches/{batch.id}/end"
        return PlannedStep(
            kind=CLASS,
            name=batch.name,
            action=StepAction.DELETE,
            requests=(planned_request("POST", path, None),),
        )

    async def _create(self, wanted: WantedClass, timeslot: Timeslot) -> PlannedStep:
        definition = self._definitions.active.get(wanted.definition)
        if definition is None:
            message = f"there is no lablet definition {wanted.definition!r} that is active"
            return refused(CLASS, wanted.name, FieldError(field="definition", message=message))
        try:
            text = await self._admitted(wanted, definition, timeslot)
        except RequestError as error:
            return refused(CLASS, wanted.name, FieldError(field="timeslot", message=str(error)))
        body = {**_plain(wanted), "file_set": self._file_set}
        past = [batch.id for batch in self._batches if batch.name == wanted.name]
        return PlannedStep(
            kind=CLASS,
            name=wanted.name,
            action=StepAction.CREATE,
            reason=text,
            requests=(planned_request("POST", "/api/lablet-sessions/batch", body, past),),
        )

    async def _admitted(self, wanted: WantedClass, definition: LabletDefinition, timeslot: Timeslot) -> str:
        """Return what the forecast says of a class that is not recorded. Raises what refuses it."""
        takes = self._records.lab_times.expected(definition.lab_yaml_hash)
        first = create_session(
            definition,
            session_id="",
            owner_id="",
            now=self._now,
            timeslot=timeslot,
            region=wanted.aws_region,
            lab_takes=takes,
            policy=self._policies.times,
        )
        await refuse_impossible(self._records, self._policies, first.demand)
        found = await forecast(
            self._records,
            self._policies,
            first.demand,
            seats=wanted.count,
            timeslot=timeslot,
            max_minutes=definition.options.max_duration_minutes,
            lab_lead=lab_lead(definition, takes, self._policies.times),
        )
        refuse_overbooking(self._policies, found)
        return found.text


def _unchanged(batch: LabletBatch, wanted: WantedClass, timeslot: Timeslot) -> PlannedStep:
    """Return the step of a class that is booked: none, if it is booked as the document says."""
    booked = batch.timeslot
    pairs = (
        ("timeslot.start", booked.start if booked is not None else "no timeslot", timeslot.start),
        ("timeslot.end", booked.end if booked is not None else "no timeslot", timeslot.end),
        ("definition", batch.definition.name, wanted.definition),
        ("count", len(batch.owners), wanted.count),
        ("owners", batch.owners, wanted.owners or batch.owners),
        ("all_or_nothing", batch.is_all_or_nothing, wanted.all_or_nothing),
        ("aws_region", batch.region, wanted.aws_region),
    )
    changes = [change for field, before, after in pairs for change in changes_of(field, before, after)]
    if not changes:
        return PlannedStep(kind=CLASS, name=batch.name, action=StepAction.KEEP)
    errors = [
        FieldError(
            field=change.field,
            message=f"a class of this name is booked with {change.before};"
            " end that one, or choose another name",
        )
        for change in changes
    ]
    return refused(CLASS, batch.name, *errors)


def _plain(wanted: WantedClass) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(wanted)
    return {name: value for name, value in plain.items() if value is not None}
