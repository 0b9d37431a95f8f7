"""A fleet as documents say that it should be, and the plan that makes it so.

The plan has the requests themselves: who carries it out sends them in order. Each has an idempotency key that
follows from its document, so a plan that was carried out in part, or twice, does nothing twice.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from lcm.domain.lablet.definition import DefinitionOptions
from lcm.rest.lablet_requests import FileSet, Id, LabYaml, Name, NewTimeslot
from lcm.rest.scheduling import MAX_SEATS
from lcm.rest.schemas import FieldError

DEFAULT_SET: Final = "default"
MAX_RESOURCES: Final = 5_000


class WantedWorker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker as a document wants it. What is left out is not managed by the document."""

    name: str
    template_name: str
    aws_region: str | None = None
    """None: the default region."""
    tags: dict[str, str] | None = None
    licensed: bool | None = None
    desired_status: Literal["running", "stopped"] | None = None


class WantedDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lablet definition as a document wants it; LCM numbers its versions."""

    name: Name
    lab_yaml: LabYaml
    options: DefinitionOptions | None = None


class WantedClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A class as a document wants it. It is booked once: a document describes no class that begins now."""

    name: Name
    definition: Name
    count: Annotated[int, Meta(ge=1, le=MAX_SEATS)]
    timeslot: NewTimeslot
    all_or_nothing: bool = False
    owners: Annotated[tuple[Id, ...], Meta(max_length=MAX_SEATS)] = ()
    """The owner of each seat; empty: who applies it owns all."""
    aws_region: Annotated[str, Meta(max_length=63)] | None = None


class WantedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A worker template of the templates file, and those of its fields that a document wants otherwise."""

    name: str
    fields: dict[str, Any]


Wanted = WantedTemplate | WantedWorker | WantedDefinition | WantedClass
KINDS: Final[dict[str, type[Wanted]]] = {
    "template": WantedTemplate,
    "definition": WantedDefinition,
    "worker": WantedWorker,
    "class": WantedClass,
}
"""In the order in which they are created: a worker needs its template, a class its definition."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The documents of a fleet."""

    resources: Annotated[list[dict[str, Any]], Meta(max_length=MAX_RESOURCES)]
    """Each with its `kind` (`template`, `worker`, `definition` or `class`) and the fields of that kind; of
    a template those of `WorkerTemplate` that are to change."""
    file_set: FileSet = DEFAULT_SET
    """Marks what the plan creates."""
    prune: bool = False
    """Whether what has the mark of the set and is in no document is deleted."""
    goal: Literal["apply", "delete"] = "apply"
    """`delete`: what the documents name goes."""


class StepAction(StrEnum):
    """What is to happen to one resource."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"
    REFUSE = "refuse"
    """The document is wrong, or LCM cannot do what it says: `errors` has the reasons."""


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field that is not as the document says."""

    field: str
    before: Any
    after: Any


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to send as it is."""

    method: str
    path: str
    body: Any = None
    idempotency_key: str
    if_match: str | None = None
    """The version that the plan is about."""


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen to one resource, and why."""

    kind: str
    name: str
    action: StepAction
    document: int | None = None
    """The position of its document; None for what no document names."""
    reason: str = ""
    changes: tuple[FieldChange, ...] = ()
    requests: tuple[PlannedRequest, ...] = ()
    errors: tuple[FieldError, ...] = ()
    usd_per_hour: float = 0.0
    """How much more the fleet costs with it, or less; sessions of classes are not counted."""


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the fleet as the documents say; in order."""

    steps: tuple[PlannedStep, ...]
    usd_per_hour_now: float
    usd_per_hour_after: float

    @property
    def refused(self) -> tuple[PlannedStep, ...]:
        return tuple(step for step in self.steps if step.action is StepAction.REFUSE)

    @property
    def due(self) -> tuple[PlannedStep, ...]:
        """The steps that change something."""
        idle = (StepAction.KEEP, StepAction.REFUSE)
        return tuple(step for step in self.steps if step.action not in idle)
