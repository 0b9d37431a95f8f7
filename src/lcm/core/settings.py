"""Settings that processes share: where the coordination store is, and how a leader is elected through it."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lcm.core.election import timing_problems
from lcm.core.kv.etcd_options import EtcdOptions, Tls, parse_endpoints
from lcm.core.secret_strength import RealPassword, StrongKeys
from lcm.core.tls import TlsFiles

ANSWER_SHARE = 0.9
"""What etcd is given of the time a caller waits, so that the caller hears what was wrong."""


def split_list(value: object) -> object:
    """A list in a file, separated by commas in the environment."""
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class OperationsSettings(BaseSettings):
    """How a process is watched."""

    metrics_token: StrongKeys = Field(
        SecretStr(""), description="The bearer token that /metrics needs; empty: it needs none."
    )


class CoordinationSettings(OperationsSettings):
    """etcd is used if one of ETCD_ENDPOINTS, ETCD_HOST and ETCD_PORT is set."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    etcd_endpoints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Members of etcd: host:port or https://host:port, by commas."
        " Overrides ETCD_HOST and ETCD_PORT.",
    )
    etcd_host: str = Field("localhost", description="The only member of etcd.")
    etcd_port: int = Field(2379, ge=1, le=65535, description="Port of ETCD_HOST.")
    etcd_key_prefix: str = Field("/lcm", description="Prefix of every key in the coordination store.")
    etcd_username: str | None = Field(None, description="User, where etcd has users.")
    etcd_password: RealPassword = Field(SecretStr(""), description="Password of ETCD_USERNAME.")
    etcd_ca_cert: Path | None = Field(None, description="PEM file of the authority etcd is checked against.")
    etcd_client_cert: Path | None = Field(None, description="PEM file of the certificate shown to etcd.")
    etcd_client_key: Path | None = Field(None, description="PEM file of the key of ETCD_CLIENT_CERT.")
    etcd_call_timeout_seconds: PositiveFloat = Field(2.0, description="Seconds etcd has to answer.")

    @property
    def uses_etcd(self) -> bool:
        return not self.model_fields_set.isdisjoint({"etcd_endpoints", "etcd_host", "etcd_port"})

    def etcd_options(self) -> EtcdOptions:
        """How to reach it. Raises ValueError or OSError if the settings do not allow it."""
        endpoints, is_tls = parse_endpoints(self.etcd_endpoints or (f"{self.etcd_host}:{self.etcd_port}",))
        files = (self.etcd_ca_cert, self.etcd_client_cert, self.etcd_client_key)
        pems = [file.read_bytes() if file is not None else None for file in files]
        return EtcdOptions(
            endpoints=endpoints,
            tls=Tls(*pems) if is_tls or any(files) else None,
            username=self.etcd_username,
            password=self.etcd_password.get_secret_value(),
            identity_key=f"{self.etcd_key_prefix}/coordination-id",
            call_timeout_seconds=self.etcd_call_timeout_seconds * ANSWER_SHARE,
        )

    @model_validator(mode="after")
    def _etcd_settings_fit_together(self) -> Self:
        if not self.uses_etcd:
            return self
        try:
            self.etcd_options()
        except OSError as error:
            raise ValueError(f"ETCD_CA_CERT, ETCD_CLIENT_CERT, ETCD_CLIENT_KEY: {error}") from None
        except ValueError as error:
            raise ValueError(f"ETCD_ENDPOINTS: {error}") from None
        if (self.etcd_client_cert is None) is not (self.etcd_client_key is None):
            raise ValueError("ETCD_CLIENT_CERT and ETCD_CLIENT_KEY: one is of no use without the other")
        return self


class TlsSettings(BaseSettings):
    """The certificate of a process, and whom it trusts."""

    tls_cert_file: Path | None = Field(
        None,
        validation_alias="LCM_TLS_CERT_FILE",
        description="PEM file of the certificate, with its chain, with which this process serves TLS; it is"
        " shown to a server that asks for one, too. Read again when it changes. Unset: no TLS.",
    )
    tls_key_file: Path | None = Field(
        None, validation_alias="LCM_TLS_KEY_FILE", description="PEM file of the key of LCM_TLS_CERT_FILE."
    )
    tls_ca_file: Path | None = Field(
        None,
        validation_alias="LCM_TLS_CA_FILE",
        description="PEM file of the authorities that certificates of LCM's other processes are checked"
        " against; unset: the system's.",
    )

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.tls_cert_file, self.tls_key_file, self.tls_ca_file)

    @model_validator(mode="after")
    def _certificate_and_key_come_together(self) -> Self:
        if (self.tls_cert_file is None) is not (self.tls_key_file is None):
            raise ValueError("LCM_TLS_CERT_FILE and LCM_TLS_KEY_FILE: one is of no use without the other")
        return self


class ElectionSettings(CoordinationSettings, TlsSettings):
    """What every controller needs to stand for election."""

    leader_lease_ttl: PositiveInt = Field(15, description="Seconds until a silent leader is replaced.")

    @model_validator(mode="after")
    def _a_leader_survives_one_lost_renewal(self) -> Self:
        if self.leader_lease_ttl < 3:
            raise ValueError(
                "LEADER_LEASE_TTL must be at least 3 seconds: one lost packet would end a shorter lease"
            )
        problems = timing_problems(self.leader_lease_ttl, self.etcd_call_timeout_seconds)
        if self.uses_etcd and problems:
            raise ValueError(
                f"LEADER_LEASE_TTL={self.leader_lease_ttl} is too short for"
                f" ETCD_CALL_TIMEOUT_SECONDS={self.etcd_call_timeout_seconds:g}: {'; '.join(problems)};"
                f" raise the first or lower the second (below {self.leader_lease_ttl * 0.3:.2g})"
            )
        return self


class ControllerSettings(ElectionSettings):
    """The settings of every controller; each gives host, port and instance an environment name."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(0, ge=0, le=65535, description="Port to listen on; 0: any free port.")
    control_plane_api_url: str = Field("http://localhost:8080", description="URL of the control plane.")
    control_plane_api_key: StrongKeys = Field(
        SecretStr(""),
        description="The key of this controller at the control plane; during a rotation several by commas, of"
        " which the first is sent. Its operations server accepts each of them.",
    )
    instance_id: str = Field("auto", description="Name of this instance in elections.")
