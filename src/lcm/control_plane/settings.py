"""What the control plane can be told, by environment or by the command line."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import NoDecode

from lcm.control_plane.access.oidc import OidcConfig
from lcm.control_plane.access.roles import Role
from lcm.control_plane.policies import Policies
from lcm.core.settings import CoordinationSettings, split_list
from lcm.domain.idle import IdlePolicy
from lcm.domain.scaling import ScalingPolicy

DEFAULT_REQUESTS_PER_SECOND: Final = 200.0


def read_object(value: object) -> object:
    """A mapping in a file, a JSON object in the environment."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError('write a JSON object, {"name": "role"}') from None


class ControlPlaneSettings(CoordinationSettings):
    """Environment names are the field names in upper case."""

    host: str = Field("127.0.0.1", validation_alias="CONTROL_PLANE_HOST", description="Address to listen on.")
    port: int = Field(
        8080, ge=0, le=65535, validation_alias="CONTROL_PLANE_PORT", description="0: any free one."
    )
    data_dir: Path = Field(
        Path("lcm-data"), validation_alias="LCM_DATA_DIR", description="Where records and keys are kept."
    )
    control_plane_api_key: SecretStr | None = Field(
        None, description="The controllers' key; made and kept in the data directory if not given."
    )
    control_plane_peers: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Where each control plane on this store answers the others, http://host:port by commas."
        " One's own address may be among them, so that all can share one list.",
    )
    lcm_secret_key: SecretStr | None = Field(
        None,
        description="Seals stored secrets: 32 bytes in base64; made and kept in the data directory if not"
        " given. Control planes on one store need the same. To rotate: the new one, a comma, the old one.",
    )
    store_url: SecretStr | None = Field(
        None,
        description="mongodb://… keeps the records in MongoDB; otherwise they are in the data directory.",
    )
    regions_config_path: Path = Field(Path("config/regions.yaml"), description="aws_region_configs.")
    aws_region: str = Field("us-east-1", description="Region of workers whose creator names none.")
    worker_templates_auto_seed: bool = Field(True, description="Read the templates file at start.")
    worker_templates_config_path: Path = Field(
        Path("config/worker_templates.yaml"), description="Templates to seed, upserted by name."
    )
    worker_activity_events_max_stored: int = Field(
        10, ge=0, le=1_000, description="Signs of people kept with each worker, newest first."
    )

    worker_idle_timeout_minutes: float = Field(
        60, gt=0, description="A worker unused for longer counts as idle."
    )
    worker_auto_pause_enabled: bool = Field(True, description="Stop idle workers.")
    worker_auto_pause_snooze_minutes: float = Field(
        60, ge=0, description="A worker that came up or was resumed is not paused for this long."
    )
    worker_busy_cpu_percent: float = Field(
        80, ge=0, le=100, description="A worker with this much load counts as used; 0: load does not count."
    )
    idle_detection_interval: float = Field(
        300, gt=0, description="Seconds between two evaluations of one worker."
    )
    worker_activity_detection_enabled: bool = Field(
        True, description="As told to the worker controller; off: no alarm for workers nobody asks about."
    )
    worker_activity_detection_interval: float = Field(
        1_800, gt=0, description="Seconds after which a running worker nobody asked about raises an alarm."
    )
    min_workers: int = Field(0, ge=0, description="Never pause or drain below this many running workers.")
    max_workers_per_region: int = Field(10, ge=1, description="Scale-up is refused at this many.")
    scale_up_cooldown_seconds: float = Field(300, ge=0, description="Between two scale-ups of a region.")
    drain_timeout_seconds: float = Field(
        14_400, gt=0, description="How long a drain waits, if the template does not say."
    )
    api_requests_per_second: float = Field(
        DEFAULT_REQUESTS_PER_SECOND, gt=0, description="Of each token; five seconds' worth may come at once."
    )
    oidc_issuer: str | None = Field(
        None, description="Accept the bearer tokens of this OpenID Connect issuer, besides LCM's own."
    )
    oidc_audience: str = Field("lcm", description="What the issuer's tokens must name as `aud`.")
    oidc_role_claim: str = Field(
        "roles", description="Claim with the names of roles; dots lead inwards: `realm_access.roles`."
    )
    oidc_roles: Annotated[
        dict[str, Literal["viewer", "operator", "admin"]], NoDecode, BeforeValidator(read_object)
    ] = Field(
        {"lcm-viewer": "viewer", "lcm-operator": "operator", "lcm-admin": "admin"},
        description="What each name in that claim makes of somebody, as a JSON object.",
    )

    def policies(self, regions: tuple[str, ...]) -> Policies:
        """Return the rules for commands and queries."""
        return Policies(
            regions=regions,
            default_region=self.aws_region,
            idle=IdlePolicy(
                timeout=timedelta(minutes=self.worker_idle_timeout_minutes),
                snooze=timedelta(minutes=self.worker_auto_pause_snooze_minutes),
                auto_pause_enabled=self.worker_auto_pause_enabled,
                min_workers=self.min_workers,
                check_interval=timedelta(seconds=self.idle_detection_interval),
                busy_cpu_percent=self.worker_busy_cpu_percent,
                alarm_after=(
                    timedelta(seconds=self.worker_activity_detection_interval)
                    if self.worker_activity_detection_enabled
                    else None
                ),
            ),
            scaling=ScalingPolicy(
                max_workers_per_region=self.max_workers_per_region,
                scale_up_cooldown=timedelta(seconds=self.scale_up_cooldown_seconds),
            ),
            activity_events_kept=self.worker_activity_events_max_stored,
            drain_timeout=timedelta(seconds=self.drain_timeout_seconds),
        )

    def oidc(self) -> OidcConfig | None:
        """Whose bearer tokens count, besides LCM's own."""
        if self.oidc_issuer is None:
            return None
        roles = {name: Role[role.upper()] for name, role in self.oidc_roles.items()}
        return OidcConfig(self.oidc_issuer, self.oidc_audience, self.oidc_role_claim, roles)

    @field_validator("control_plane_peers")
    @classmethod
    def _are_addresses(cls, peers: tuple[str, ...]) -> tuple[str, ...]:
        for peer in peers:
            address = urlsplit(peer)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ValueError(f"{peer!r} is not an address; write http://host:port")
        return peers

    @field_validator("store_url")
    @classmethod
    def _is_of_mongodb(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("write mongodb://host/database, or leave it out to keep records in a file")
        return url
