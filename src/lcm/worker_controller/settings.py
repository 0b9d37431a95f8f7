"""Settings of the worker controller, from the environment or the command line."""

from datetime import timedelta
from pathlib import Path
from typing import Self

from pydantic import (
    AliasChoices,
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)

from lcm.cml.connection import CmlLimits
from lcm.cml.settings import CmlSettings
from lcm.core.secret_strength import StrongKeys
from lcm.core.settings import ElectionSettings
from lcm.domain.discovery import AllowList, ImportTrust, parse_tag_filter
from lcm.domain.idle import EVIDENCE_MAX_AGE, ControllerTerms
from lcm.domain.scaling import ScaleDownPolicy


class WorkerControllerSettings(ElectionSettings, CmlSettings):
    """Environment names are the field names in upper case, unless an alias says otherwise."""

    host: str = Field(
        "127.0.0.1", validation_alias="WORKER_CONTROLLER_HOST", description="Address to listen on."
    )
    port: int = Field(
        8083,
        ge=0,
        le=65535,
        validation_alias="WORKER_CONTROLLER_PORT",
        description="Port to listen on; 0: any free port.",
    )
    control_plane_api_url: str = Field("http://localhost:8080", description="URL of the control plane.")
    control_plane_api_key: StrongKeys = Field(
        SecretStr(""),
        description="The key of this controller at the control plane; during a rotation several by commas, of"
        " which the first is sent. Its operations server accepts each of them.",
    )
    worker_controller_instance_id: str = Field(
        "auto", description="Name of this process in leader elections."
    )

    reconcile_interval: PositiveFloat = Field(30.0, description="Seconds between resyncs of all workers.")
    reconcile_polling_enabled: bool = Field(
        True, description="Off: no resync; only changes wake the controller."
    )
    watch_debounce_seconds: PositiveFloat = Field(
        0.5, description="Seconds in which further changes of a worker are merged into one reconcile."
    )
    wait_seconds: PositiveFloat = Field(
        2.0,
        validation_alias="WORKER_WAIT_SECONDS",
        description="Seconds between observations of a worker that changes its status.",
    )
    provisioning_timeout_seconds: PositiveFloat = Field(
        900.0,
        description="Seconds from PENDING to RUNNING before a worker is FAILED, unless its template says.",
    )

    regions_config_path: Path = Field(Path("config/regions.yaml"), description="aws_region_configs.")
    cml_deregistration_timeout_seconds: float = Field(
        120.0,
        gt=0,
        le=120,
        description="Seconds in which CML must answer a deregistration: it waits for Cisco. A worker that is"
        " deleted waits for its license no longer than 120 seconds in all.",
    )
    environment_tag: str = Field(
        "production", validation_alias="LCM_ENVIRONMENT", description="Value of the tag cml-environment."
    )
    aws_account_id: str | None = Field(
        None,
        pattern=r"^[0-9]{12}$",
        description="The only AWS account to work in: with credentials of another one the controller freezes."
        " Unset: the account of the credentials.",
    )
    aws_endpoint_url: str | None = Field(None, description="EC2 endpoint instead of AWS itself.")
    cml_websocket_enabled: bool = Field(True, description="Off: workers are polled by REST only.")
    cml_websocket_metrics_report_interval: PositiveFloat = Field(
        10.0, description="Seconds between two reports of a worker's load, and of a lab's."
    )
    cml_websocket_reconnect_max_interval: PositiveFloat = Field(
        30.0, description="Maximum seconds between two attempts to reconnect."
    )
    cml_websocket_max_reconnect_attempts: PositiveInt = Field(
        3, description="Consecutive failures until a connection is FAILED and tried once per resync."
    )
    cml_websocket_health_timeout: PositiveFloat = Field(
        60.0,
        description="Seconds without a frame until a connection is closed as broken. After a third of them"
        " CML is pinged, and has another third to answer, as a new connection has for its first event.",
    )
    cml_websocket_connect_timeout_seconds: PositiveFloat = Field(
        CmlLimits.websocket, description="Seconds until CML must have accepted a WebSocket connection."
    )
    cml_telemetry_timeout_seconds: PositiveFloat = Field(
        CmlLimits.telemetry,
        lt=EVIDENCE_MAX_AGE.total_seconds(),
        description="Seconds in which CML must have sent its whole telemetry; below 30, because older"
        " telemetry proves no idleness.",
    )
    metrics_poll_interval: PositiveFloat = Field(
        60.0,
        validation_alias=AliasChoices("METRICS_POLL_INTERVAL", "METRICS_COLLECT_INTERVAL"),
        description="Seconds between REST polls while there is no WebSocket connection, and between reads of"
        " CloudWatch, health and license. Also METRICS_COLLECT_INTERVAL.",
    )
    worker_activity_detection_enabled: bool = Field(
        True, description="Run idle checks; off: no worker is ever paused automatically."
    )
    scale_down_enabled: bool = Field(False, description="Drain idle workers instead of pausing them.")
    min_workers: int = Field(
        0, ge=0, description="Number of running workers below which none is paused or drained."
    )
    idle_detection_interval: PositiveFloat = Field(
        300.0, description="Seconds between two idle checks of a worker."
    )
    scale_down_cooldown_seconds: float = Field(
        600.0, ge=0, description="Seconds between two drains by scale-down."
    )
    otel_exporter_otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector to send the metrics to every 10 s, besides /metrics."
    )

    @property
    def terms(self) -> ControllerTerms:
        return ControllerTerms(
            idle_detection_interval=self.idle_detection_interval, min_workers=self.min_workers
        )

    @property
    def scale_down(self) -> ScaleDownPolicy:
        return ScaleDownPolicy(self.scale_down_enabled, self.min_workers, self.scale_down_cooldown_seconds)

    aws_region: str = Field(
        "us-east-1", description="Region of discovery if WORKER_DISCOVERY_REGIONS is empty."
    )
    worker_discovery_enabled: bool = Field(True, description="Import matching instances and report orphans.")
    auto_import_enabled: bool = Field(
        True, description="Alias of WORKER_DISCOVERY_ENABLED; false in either disables discovery."
    )
    auto_import_trust: ImportTrust = Field(
        ImportTrust.ADOPT,
        description="`adopt`: the CML of a found instance gets no login before an admin adopts the worker."
        " `tag`: those on AUTO_IMPORT_ALLOW need no adoption.",
    )
    auto_import_allow: str = Field(
        "",
        description="With AUTO_IMPORT_TRUST=tag: owner=…,vpc=…,subnet=…,ami=…; an instance needs one value of"
        " each kind that is named. A kind may be named several times.",
    )
    worker_discovery_interval: PositiveFloat = Field(
        300.0, description="Seconds between two discovery scans."
    )
    worker_discovery_tag_filter: str | None = Field(
        None, description="Tags of instances to import, key=value,…: all must match. Unset: cml-managed=true."
    )
    worker_discovery_ami_filter: str = Field("", description="AMI name pattern, with * and ?; empty: any.")
    worker_discovery_regions: str = Field(
        "", description="Regions to scan, comma-separated; empty: AWS_REGION."
    )
    orphan_termination_enabled: bool = Field(
        False, description="Terminate instances that LCM launched and no record owns; off: only report them."
    )
    cleanup_enabled: bool = Field(
        True, description="Purge records of terminated workers after the retention."
    )
    cleanup_interval_seconds: PositiveFloat = Field(3600.0, description="Seconds between two purges.")
    cleanup_retention_days: int = Field(
        30, ge=1, le=365, description="Days that the record of a terminated worker is kept."
    )

    @property
    def is_discovery_enabled(self) -> bool:
        return self.worker_discovery_enabled and self.auto_import_enabled

    @property
    def discovery_regions(self) -> tuple[str, ...]:
        return tuple(filter(None, (name.strip() for name in self.worker_discovery_regions.split(","))))

    @property
    def allow_list(self) -> AllowList:
        return AllowList.parse(self.auto_import_allow)

    @field_validator("auto_import_allow")
    @classmethod
    def _allow_list_can_be_read(cls, text: str) -> str:
        AllowList.parse(text)
        return text

    @model_validator(mode="after")
    def _a_tag_alone_is_not_trusted(self) -> Self:
        is_by_tag = self.auto_import_trust is ImportTrust.TAG
        if is_by_tag and not self.allow_list.wanted:
            raise ValueError(
                "AUTO_IMPORT_TRUST=tag would give the fleet's login to any instance with a tag; name in"
                " AUTO_IMPORT_ALLOW which owner, vpc, subnet or ami is yours, as in vpc=vpc-0a1b2c3d"
            )
        if self.auto_import_allow and not is_by_tag:
            raise ValueError("AUTO_IMPORT_ALLOW has no effect without AUTO_IMPORT_TRUST=tag; set that too")
        return self

    @field_validator("worker_discovery_tag_filter")
    @classmethod
    def _tag_filter_can_be_read(cls, text: str | None) -> str | None:
        parse_tag_filter(text or "")
        return text

    @property
    def provisioning_timeout(self) -> timedelta:
        return timedelta(seconds=self.provisioning_timeout_seconds)
