"""What travels between the control plane and those who talk to it.

Answers and the controllers' reports are msgspec structs: one definition gives the encoder, the
strict decoder and the OpenAPI schema. What people send is checked by pydantic at the public routes.
"""

from datetime import datetime

import msgspec

from lcm.domain.launch import InstanceId, LaunchSpec, WorkerId
from lcm.domain.lifecycle import DesiredStatus, WorkerStatus
from lcm.domain.live import ActivityEvent, LabChange, LabStats, MonitorState, Sample, SampleSource
from lcm.domain.template import WorkerTemplate
from lcm.domain.worker import Action, HistoryEntry, Instance, Worker, possible_actions

API_KEY_HEADER = "X-API-Key"
SERVICE_HEADER = "X-LCM-Service"
EPOCH_HEADER = "X-LCM-Epoch"
PROBLEM_TYPE_PREFIX = "urn:lcm:problem:"


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as people see it."""

    id: WorkerId
    name: str
    template_name: str
    aws_region: str
    tags: dict[str, str]
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    generation: int
    desired_status: DesiredStatus
    status: WorkerStatus
    status_reason: str
    ec2_instance_id: InstanceId | None
    instance_type: str | None
    ami_id: str | None
    ami_name: str | None
    ami_description: str | None
    ami_creation_date: str | None
    public_ip: str | None
    private_ip: str | None
    cml_version: str | None
    cml_ready: bool
    imported: bool
    possible_actions: tuple[Action, ...]

    @staticmethod
    def of(worker: Worker) -> "WorkerView":
        shared = {name: getattr(worker, name) for name in _SHARED_FIELDS}
        return WorkerView(**shared, possible_actions=tuple(sorted(possible_actions(worker))))


_SHARED_FIELDS = [name for name in WorkerView.__struct_fields__ if name != "possible_actions"]


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Workers by name; `next` asks for the rest."""

    items: list[WorkerView]
    next: str | None = None


class WorkerRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Whole records, for controllers."""

    items: list[Worker]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker came to be what it is, oldest first."""

    items: tuple[HistoryEntry, ...]


class TemplateList(msgspec.Struct, frozen=True, kw_only=True):
    """Templates, cheapest first."""

    items: list[WorkerTemplate]


class RegionView(msgspec.Struct, frozen=True, kw_only=True):
    """A region workers can be put in."""

    name: str
    is_default: bool


class RegionList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[RegionView]


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who is signed in."""

    actor: str
    role: str


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    allowed: list[str] = []
    """What is possible instead, if the request was refused because of a worker's status."""
    errors: list[FieldError] = []
    """What is wrong with which field."""


# What controllers report. `expected_version` makes a report a compare-and-set: it is refused if the
# record changed since the controller read it.


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's status is now this, for this reason."""

    status: WorkerStatus
    reason: str
    expected_version: int
    observed: bool = False
    """Whether EC2 did it by itself."""
    instance: Instance | None = None
    """The instance this worker is, if that is news."""


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Promise this launch before it is asked of EC2."""

    spec: LaunchSpec
    expected_version: int


class LaunchVoided(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The promised instance is gone for good, or was `refused` and never existed."""

    reason: str
    expected_version: int
    refused: bool = False


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker's instance, with its present addresses."""

    instance: Instance
    expected_version: int


class CmlReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the worker's CML says about itself."""

    ready: bool
    version: str | None = None
    certificate_sha256: str | None = None


class ActivityReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signs of people on one worker, in the order they were seen.

    `stream` names the observer's run and `last_sequence` counts its events for this worker up to the last
    one here: what was told before is recognised and counts once.
    """

    worker_id: WorkerId
    activity_events: list[ActivityEvent]
    source: SampleSource
    stream: str
    last_sequence: int


class LiveReports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whatever came in from all workers since the last report; sent together because that is cheap."""

    samples: list[Sample] = []
    lab_stats: list[LabStats] = []
    lab_changes: list[LabChange] = []
    activity: list[ActivityReport] = []


class LiveReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of live reports; those of unknown or resting workers are dropped."""

    accepted: int
    dropped: int


class WebSocketReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the live connection to a worker stands, and since when."""

    connected: bool
    status: MonitorState
    reason: str = ""
    connected_at: datetime | None = None
    disconnected_at: datetime | None = None


class LeadershipClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An election was won: with this key revision, in the store of this identity."""

    service: str
    cluster_id: str
    revision: int
    instance_id: str


class LeadershipGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch to send with every write."""

    epoch: int
