"""The settings of every process that talks to CML."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PositiveFloat, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from lcm.cml.connection import CmlLimits
from lcm.cml.proxy import Proxy
from lcm.cml.session import Credentials
from lcm.cml.tls import CmlTls, CmlTrust
from lcm.core.secret_strength import RealPassword
from lcm.core.settings import split_list


class CmlSettings(BaseSettings):
    """How the CML of a worker is reached, and the fleet's login."""

    use_private_ip_for_monitoring: bool = Field(False, description="Reach CML at the private address.")
    cml_port: int = Field(
        443, ge=1, le=65535, validation_alias="CML_WORKER_API_PORT", description="CML's HTTPS port."
    )
    cml_worker_api_username: str = Field("", description="CML login; empty: CML_DEFAULT_USERNAME.")
    cml_worker_api_password: RealPassword = Field(
        SecretStr(""), description="Password of CML_WORKER_API_USERNAME; empty: CML_DEFAULT_PASSWORD."
    )
    cml_default_username: str = Field("admin", description="CML login if no other is set.")
    cml_default_password: RealPassword = Field(SecretStr(""), description="Password of CML_DEFAULT_USERNAME.")
    cml_worker_api_verify_ssl: CmlTrust = Field(
        CmlTrust.PIN,
        description="`false`: CML's certificate is pinned at first contact. `true`: a CA must have signed it."
        " `off`: it is not verified.",
    )
    cml_worker_api_ca_file: Path | None = Field(
        None,
        description="PEM file of the CAs that CML_WORKER_API_VERIFY_SSL=true accepts; unset: the system's.",
    )
    cml_worker_api_host_names: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)] = Field(
        (),
        description="Patterns by commas, as `*.cml.example.com`: with CML_WORKER_API_VERIFY_SSL=true CML's"
        " certificate must have a name that matches one. Unset: its address, which changes with each start.",
    )
    cml_request_timeout_seconds: PositiveFloat = Field(
        CmlLimits.request, description="Seconds a small request to CML may take."
    )
    cml_login_timeout_seconds: PositiveFloat = Field(
        CmlLimits.login, description="Seconds a login at CML may take; it is slow while labs boot."
    )
    https_proxy: SecretStr | None = Field(
        None, description="http://[user:password@]host:port through which CML is reached, as AWS is."
    )
    no_proxy: str = Field(
        "", description="Hosts reached without HTTPS_PROXY, by commas: names, addresses, networks, or `*`."
    )

    @property
    def cml_credentials(self) -> Credentials:
        return Credentials(
            self.cml_worker_api_username or self.cml_default_username,
            (self.cml_worker_api_password or self.cml_default_password).get_secret_value(),
        )

    @property
    def cml_tls(self) -> CmlTls:
        names = tuple(name.strip().lower() for name in self.cml_worker_api_host_names)
        return CmlTls(self.cml_worker_api_verify_ssl, self.cml_worker_api_ca_file, names)

    @property
    def cml_proxy(self) -> Proxy | None:
        url = self.https_proxy.get_secret_value() if self.https_proxy else ""
        return Proxy.parse(url, self.no_proxy) if url else None

    @model_validator(mode="after")
    def _ca_settings_have_an_effect(self) -> Self:
        if self.cml_worker_api_verify_ssl is not CmlTrust.CA:
            if self.cml_worker_api_ca_file is not None or self.cml_worker_api_host_names:
                raise ValueError(
                    "CML_WORKER_API_CA_FILE and CML_WORKER_API_HOST_NAMES have no effect without"
                    " CML_WORKER_API_VERIFY_SSL=true; set that too"
                )
            return self
        try:
            self.cml_tls.context()
        except OSError as error:
            raise ValueError(f"CML_WORKER_API_CA_FILE: {error}") from None
        return self

    @model_validator(mode="after")
    def _proxy_can_be_used(self) -> Self:
        try:
            _ = self.cml_proxy
        except ValueError as error:
            raise ValueError(f"HTTPS_PROXY: {error}") from None
        return self

    @field_validator("cml_worker_api_verify_ssl", mode="before")
    @classmethod
    def _in_any_case(cls, value: object) -> object:
        return value if isinstance(value, CmlTrust) else str(value).lower()
