"""The settings of the control plane, from the environment or the command line."""

import json
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    IPvAnyNetwork,
    PositiveInt,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from lcm.control_plane.access.identity import AccessLimits
from lcm.control_plane.access.oidc import OidcConfig
from lcm.control_plane.access.roles import Role
from lcm.control_plane.access.services import ServiceKeys
from lcm.control_plane.policies import Policies
from lcm.core.secret_strength import RealPassword, StrongKeys, keys_in
from lcm.core.settings import CoordinationSettings, TlsSettings, split_list
from lcm.core.tls import TlsFiles
from lcm.domain.idle import ControllerTerms, IdlePolicy
from lcm.domain.lablet.lab_standing import LeakPolicy
from lcm.domain.lablet.ports import HIGHEST_PORT, LOWEST_PORT, PortRange
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.domain.scaling import ScalingPolicy
from lcm.domain.template import RegionConfig
from lcm.rest.schemas import (
    CONTROL_PLANE,
    LABLET_CONTROLLER,
    RESOURCE_SCHEDULER,
    WORKER_CONTROLLER,
    DeviceClient,
)

DEFAULT_REQUESTS_PER_SECOND: Final = 200.0


def read_object(value: object) -> object:
    """Return a mapping as it is, and a JSON object in a string decoded."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError('write a JSON object, {"name": "role"}') from None


class ControlPlaneSettings(CoordinationSettings, TlsSettings):
    """Environment names are the field names in upper case."""

    host: str = Field(
        "127.0.0.1",
        validation_alias="CONTROL_PLANE_HOST",
        description="Address on which the control plane listens.",
    )
    port: int = Field(
        8080,
        ge=0,
        le=65535,
        validation_alias="CONTROL_PLANE_PORT",
        description="Port on which the control plane listens; 0: any free port.",
    )
    forwarded_allow_ips: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Addresses or networks of the proxies in front, by commas. Only their X-Forwarded-For and"
        " X-Forwarded-Proto count.",
    )
    tls_client_ca_file: Path | None = Field(
        None,
        validation_alias="LCM_TLS_CLIENT_CA_FILE",
        description="PEM file of the authorities of client certificates: controllers and peers must then show"
        " one on `/api/internal`, besides their key. Needs LCM_TLS_CERT_FILE. Unset: the key suffices.",
    )
    data_dir: Path = Field(
        Path("lcm-data"), validation_alias="LCM_DATA_DIR", description="Directory of the records and keys."
    )
    control_plane_api_key: StrongKeys = Field(
        SecretStr(""),
        description="Key of every service that has none of its own, on all internal routes. Unset and no"
        " service has its own: generated in the data directory. Here and below: several by commas during a"
        " rotation.",
    )
    worker_controller_api_key: StrongKeys = Field(
        SecretStr(""),
        description="Key of the worker controller alone, its CONTROL_PLANE_API_KEY: opens only its routes.",
    )
    resource_scheduler_api_key: StrongKeys = Field(
        SecretStr(""),
        description="Key of the resource scheduler alone, its CONTROL_PLANE_API_KEY: opens only its routes.",
    )
    lablet_controller_api_key: StrongKeys = Field(
        SecretStr(""),
        description="Key of the lablet controller alone, its CONTROL_PLANE_API_KEY: opens only its routes.",
    )
    control_plane_peer_api_key: StrongKeys = Field(
        SecretStr(""),
        description="Key with which control planes follow each other, the same for all; the first is sent."
        " Opens only the replication feed.",
    )
    control_plane_peers: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Addresses of all control planes on this store: http://host:port, separated by commas."
        " A control plane skips its own address, so that all can share one list.",
    )
    lcm_secret_key: SecretStr | None = Field(
        None,
        description="Key that seals stored secrets: 32 bytes in base64; generated in the data directory if"
        " not set. Control planes on one store need the same. To rotate: the new key, a comma, the old key.",
    )
    access_keys_enabled: bool = Field(
        True,
        description="Whether people may sign in with the keys in keys.json, which do not expire. Off is"
        " refused until an admin has a token, or OIDC_ISSUER is set.",
    )
    access_token_max_days: float | None = Field(
        None, gt=0, description="Days that an access token lives at most; unset: as its creator says."
    )
    store_url: SecretStr | None = Field(
        None,
        description="mongodb://… stores the records in MongoDB; without it they are in the data directory.",
    )
    regions_config_path: Path = Field(
        Path("config/regions.yaml"), description="YAML file with the AWS regions (`aws_region_configs`)."
    )
    aws_region: str = Field("us-east-1", description="Region of a new worker whose request names none.")
    worker_templates_auto_seed: bool = Field(
        True, description="Seed the worker templates from their file at start."
    )
    worker_templates_config_path: Path = Field(
        Path("config/worker_templates.yaml"),
        description="YAML file of the worker templates; they are upserted by name.",
    )
    worker_networks: Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Networks in which addresses of workers must be, by commas; empty: anywhere. Controllers"
        " cannot report names or link-local addresses.",
    )
    worker_activity_events_max_stored: int = Field(
        10, ge=0, le=1_000, description="Activity events stored with each worker, newest first."
    )

    worker_idle_timeout_minutes: float = Field(
        60, gt=0, description="Minutes without activity after which a worker is idle."
    )
    worker_auto_pause_enabled: bool = Field(True, description="Whether idle workers are stopped.")
    worker_auto_pause_snooze_minutes: float = Field(
        60, ge=0, description="Minutes after a start or resume in which a worker is not paused."
    )
    pause_extract_configs: bool = Field(
        False,
        description="Whether the running configurations of nodes are extracted into their labs before LCM"
        " stops a worker. The lablet controller does it; without one each stop waits in vain.",
    )
    pause_extract_timeout_seconds: float = Field(
        60, gt=0, le=600, description="Seconds that a stop waits for PAUSE_EXTRACT_CONFIGS at most."
    )
    worker_busy_cpu_percent: float = Field(
        80, ge=0, le=100, description="CPU load from which a worker is not idle; 0: load is ignored."
    )
    idle_detection_interval: float | None = Field(
        None,
        gt=0,
        description="Enforced as the worker controller has it; set here too, another value is refused.",
    )
    worker_activity_detection_enabled: bool = Field(
        True, description="Same value as for the worker controller; off: no alarm for overdue idle checks."
    )
    worker_activity_detection_interval: float = Field(
        1_800, gt=0, description="Seconds without an idle check after which a running worker raises an alarm."
    )
    cml_ready_timeout_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds that CML of a running worker may take to become ready until it raises an alarm;"
        " unset: 2400 on bare metal, otherwise 900. An idle timeout later the worker is paused.",
    )
    min_workers: int | None = Field(
        None,
        ge=0,
        description="Enforced as the worker controller has it; set here too, another value is refused.",
    )
    max_workers_per_region: int = Field(
        10, ge=1, description="Number of workers in a region at which a scale-up is refused."
    )
    scale_up_cooldown_seconds: float = Field(
        300, ge=0, description="Seconds between two scale-ups of a region."
    )
    drain_timeout_seconds: float = Field(
        14_400, gt=0, description="Seconds a drain waits for sessions, if the template sets no time."
    )
    timeslot_lead_time_minutes: float = Field(
        35, ge=0, description="Minutes before its timeslot at which the search for a session's worker begins."
    )
    worker_boot_minutes: float = Field(
        25,
        gt=0,
        description="Minutes from the launch of a worker until its CML takes labs, as expected until three"
        " launches of its template were seen.",
    )
    lab_start_minutes: float = Field(
        5,
        ge=0,
        description="Minutes before its timeslot at which the lab of a session is started, at least.",
    )
    timeslot_expiry_grace_minutes: float = Field(
        5,
        ge=0,
        description="Minutes after the start of its timeslot at which a session has missed it, if no worker"
        " is on its way; and after its end, at which a session that still runs is ended.",
    )
    timeslot_teardown_minutes: float = Field(
        10, ge=0, description="Minutes after the end of a session at which its room is expected to be free."
    )
    handover_late_minutes: float = Field(
        0,
        ge=0,
        description="Minutes that a session may start late to take the room of one that ends, instead of a"
        " new worker.",
    )
    end_warning_minutes: Annotated[tuple[PositiveInt, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (10, 5), description="Minutes before its end at which the people of a session are warned, by commas."
    )
    max_booking_days: float = Field(90, gt=0, description="Days ahead for which a timeslot can be booked.")
    port_range_min: int = Field(
        LOWEST_PORT,
        ge=LOWEST_PORT,
        le=HIGHEST_PORT,
        description="Lowest port of a worker that sessions are granted.",
    )
    port_range_max: int = Field(
        PortRange().last,
        ge=LOWEST_PORT,
        le=HIGHEST_PORT,
        description="Highest port of a worker that sessions are granted; PATty serves ports up to 7999.",
    )
    port_reserved: Annotated[tuple[int, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (9090,), description="Ports that no session is granted, by commas; Cockpit listens on 9090."
    )
    access_private_ip: bool = Field(
        False, description="Whether people are given the private addresses of workers for their labs."
    )
    cml_port: int = Field(
        443,
        ge=1,
        le=65535,
        validation_alias="CML_WORKER_API_PORT",
        description="CML's HTTPS port in the addresses of labs; as the controllers'.",
    )
    booking_overcommit: Literal["warn", "refuse"] = Field(
        "warn",
        description="What follows for a booking that the fleet cannot carry in its timeslot: `warn` accepts"
        " it and says so, `refuse` rejects it.",
    )
    replace_lost_sessions: bool = Field(
        True, description="Whether a session that loses its worker after it was READY is placed again, once."
    )
    leaked_labs: LeakPolicy = Field(
        LeakPolicy.REMOVE,
        description="What follows for a lab with this fleet's marker that no session has any more: `remove`"
        " stops, wipes and deletes it, `report` only shows it.",
    )
    placement_headroom_percent: float = Field(
        0,
        ge=0,
        le=1_000,
        description="Room in percent of their needs that is bought besides for new sessions.",
    )
    max_retries: int = Field(
        35,
        ge=1,
        description="Failed placements after which a session fails; a booked one is then tried every five"
        " minutes.",
    )
    capacity_refresh_interval_seconds: float = Field(
        30, gt=0, description="Seconds between two checks of the capacity keys in the coordination store."
    )
    api_requests_per_second: float = Field(
        DEFAULT_REQUESTS_PER_SECOND,
        gt=0,
        description="Requests per second of each token; the requests of five seconds may come at once.",
    )
    oidc_issuer: str | None = Field(
        None, description="OpenID Connect issuer whose bearer tokens are accepted besides LCM's own."
    )
    oidc_audience: str = Field(
        "lcm", description="Audience (`aud`) that tokens of the OpenID Connect issuer must name."
    )
    oidc_client_id: str | None = Field(
        None,
        description="Client of LCM at the OpenID Connect issuer: people can then sign in there from the"
        " dashboard. Its redirect URI is https://HOST/api/session/oidc/callback.",
    )
    oidc_client_secret: RealPassword = Field(
        SecretStr(""), description="Secret of OIDC_CLIENT_ID; empty: a public client, with PKCE alone."
    )
    oidc_device_client_id: str | None = Field(
        None,
        description="Public client at the OpenID Connect issuer, with the device authorization grant: people"
        " can then sign in there with `lcm login --device`.",
    )
    oidc_device_scope: str = Field(
        "openid profile email offline_access",
        description="What `lcm login --device` asks the issuer for: access tokens for OIDC_AUDIENCE, and a"
        " refresh token.",
    )
    oidc_token_type: str = Field(
        "", description="The `typ` that its tokens must have, as at+jwt; empty: any but that of an ID token."
    )
    oidc_role_claim: str = Field(
        "roles",
        description="OpenID Connect claim with role names; dots for nested claims: `realm_access.roles`.",
    )
    oidc_roles: Annotated[
        dict[str, Literal["viewer", "operator", "admin"]], NoDecode, BeforeValidator(read_object)
    ] = Field(
        {"lcm-viewer": "viewer", "lcm-operator": "operator", "lcm-admin": "admin"},
        description="LCM role for each role name in OpenID Connect tokens, as a JSON object.",
    )

    @property
    def is_local(self) -> bool:
        """Whether only programs on this host reach it, and none of them is a proxy."""
        is_loopback = self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"
        return is_loopback and not self.forwarded_allow_ips

    @property
    def access_limits(self) -> AccessLimits:
        days = self.access_token_max_days
        return AccessLimits(self.access_keys_enabled, timedelta(days=days) if days is not None else None)

    def policies(self, regions: Mapping[str, RegionConfig]) -> Policies:
        """Return the rules for commands and queries."""
        prices = {name: region.disk_usd_per_gb_month for name, region in regions.items()}
        return Policies(
            regions=tuple(sorted(regions)),
            disk_usd_per_gb_month={name: price for name, price in prices.items() if price is not None},
            default_region=self.aws_region,
            idle=IdlePolicy(
                timeout=timedelta(minutes=self.worker_idle_timeout_minutes),
                snooze=timedelta(minutes=self.worker_auto_pause_snooze_minutes),
                auto_pause_enabled=self.worker_auto_pause_enabled,
                lead=timedelta(minutes=self.timeslot_lead_time_minutes),
                busy_cpu_percent=self.worker_busy_cpu_percent,
                cml_ready_within=(
                    timedelta(seconds=self.cml_ready_timeout_seconds)
                    if self.cml_ready_timeout_seconds is not None
                    else None
                ),
                alarm_after=(
                    timedelta(seconds=self.worker_activity_detection_interval)
                    if self.worker_activity_detection_enabled
                    else None
                ),
                extract_within=(
                    timedelta(seconds=self.pause_extract_timeout_seconds)
                    if self.pause_extract_configs
                    else None
                ),
            ),
            own_terms=ControllerTerms(
                idle_detection_interval=self.idle_detection_interval, min_workers=self.min_workers
            ),
            scaling=ScalingPolicy(
                max_workers_per_region=self.max_workers_per_region,
                scale_up_cooldown=timedelta(seconds=self.scale_up_cooldown_seconds),
            ),
            activity_events_kept=self.worker_activity_events_max_stored,
            drain_timeout=timedelta(seconds=self.drain_timeout_seconds),
            ports=PortRange(
                first=self.port_range_min,
                last=self.port_range_max,
                reserved=frozenset(self.port_reserved),
            ),
            times=self._times(),
            gives_private_ip=self.access_private_ip,
            cml_port=self.cml_port,
            refuses_overbooking=self.booking_overcommit == "refuse",
            can_replace_lost=self.replace_lost_sessions,
            worker_networks=self.worker_networks,
            headroom_percent=self.placement_headroom_percent,
            leaked_labs=self.leaked_labs,
            max_retries=self.max_retries,
        )

    def _times(self) -> TimeslotPolicy:
        return TimeslotPolicy(
            lead=timedelta(minutes=self.timeslot_lead_time_minutes),
            worker_boot=timedelta(minutes=self.worker_boot_minutes),
            lab_lead=timedelta(minutes=self.lab_start_minutes),
            grace=timedelta(minutes=self.timeslot_expiry_grace_minutes),
            teardown=timedelta(minutes=self.timeslot_teardown_minutes),
            handover_late=timedelta(minutes=self.handover_late_minutes),
            max_booking=timedelta(days=self.max_booking_days),
            end_warnings=self.end_warning_minutes,
        )

    def oidc(self) -> OidcConfig | None:
        """Return the configuration of the OpenID Connect issuer, if one is set."""
        if self.oidc_issuer is None:
            return None
        roles = {name: Role[role.upper()] for name, role in self.oidc_roles.items()}
        return OidcConfig(
            self.oidc_issuer, self.oidc_audience, self.oidc_role_claim, roles, self.oidc_token_type
        )

    def device_client(self) -> DeviceClient | None:
        """Return what programs without a browser sign people in with, if that is set."""
        if self.oidc_issuer is None or self.oidc_device_client_id is None:
            return None
        return DeviceClient(
            issuer=self.oidc_issuer, client_id=self.oidc_device_client_id, scope=self.oidc_device_scope
        )

    def service_keys(self, generated: str) -> ServiceKeys:
        """Return who may call `/api/internal`; the generated key is for an LCM in which no key is set."""
        own = {
            WORKER_CONTROLLER: self.worker_controller_api_key,
            RESOURCE_SCHEDULER: self.resource_scheduler_api_key,
            LABLET_CONTROLLER: self.lablet_controller_api_key,
            CONTROL_PLANE: self.control_plane_peer_api_key,
        }
        given = {service: keys for service, key in own.items() if (keys := keys_in(key.get_secret_value()))}
        shared = keys_in(self.control_plane_api_key.get_secret_value())
        return ServiceKeys(shared or (() if given else (generated,)), given)

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_ca_file, self.tls_client_ca_file)

    @model_validator(mode="after")
    def _no_two_services_share_a_key(self) -> Self:
        services_of: dict[str, list[str]] = {}
        for name in (
            "control_plane_api_key",
            "worker_controller_api_key",
            "resource_scheduler_api_key",
            "lablet_controller_api_key",
            "control_plane_peer_api_key",
        ):
            for key in set(keys_in(getattr(self, name).get_secret_value())):
                services_of.setdefault(key, []).append(name.upper())
        for names in services_of.values():
            if len(names) > 1:
                raise ValueError(f"{' and '.join(names)} have the same key; give each another one")
        return self

    @model_validator(mode="after")
    def _client_certificates_need_tls(self) -> Self:
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("LCM_TLS_CLIENT_CA_FILE has no effect without LCM_TLS_CERT_FILE; set that too")
        return self

    @model_validator(mode="after")
    def _ports_are_a_range(self) -> Self:
        if self.port_range_min > self.port_range_max:
            raise ValueError(
                f"PORT_RANGE_MIN={self.port_range_min} is above PORT_RANGE_MAX={self.port_range_max};"
                " lower the first or raise the second"
            )
        return self

    @model_validator(mode="after")
    def _a_worker_is_sought_before_the_lab_starts(self) -> Self:
        if self.lab_start_minutes > self.timeslot_lead_time_minutes:
            raise ValueError(
                f"LAB_START_MINUTES={self.lab_start_minutes:g} is longer than"
                f" TIMESLOT_LEAD_TIME_MINUTES={self.timeslot_lead_time_minutes:g}: the lab would be due"
                " before its worker is sought; raise the second"
            )
        return self

    @model_validator(mode="after")
    def _a_client_has_an_issuer(self) -> Self:
        clients = {
            "OIDC_CLIENT_ID": self.oidc_client_id,
            "OIDC_DEVICE_CLIENT_ID": self.oidc_device_client_id,
        }
        for name, client in clients.items():
            if client is not None and self.oidc_issuer is None:
                raise ValueError(f"{name} has no effect without OIDC_ISSUER; set that too")
        return self

    @field_validator("control_plane_peers")
    @classmethod
    def _are_addresses(cls, peers: tuple[str, ...]) -> tuple[str, ...]:
        for peer in peers:
            address = urlsplit(peer)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ValueError(f"{peer!r} is not an address; write http://host:port")
        return peers

    @field_validator("forwarded_allow_ips")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"{proxy!r} is not an address or a network; write 10.0.0.5 or 10.0.0.0/24"
                ) from None
        return proxies

    @field_validator("store_url")
    @classmethod
    def _is_of_mongodb(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("write mongodb://host/database, or leave it unset to store records in a file")
        return url
