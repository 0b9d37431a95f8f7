"""The settings of every process that talks to CML."""

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from lcm.cml.connection import CmlTrust
from lcm.cml.session import Credentials
from lcm.core.secret_strength import RealPassword


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

    @property
    def cml_credentials(self) -> Credentials:
        return Credentials(
            self.cml_worker_api_username or self.cml_default_username,
            (self.cml_worker_api_password or self.cml_default_password).get_secret_value(),
        )

    @field_validator("cml_worker_api_verify_ssl", mode="before")
    @classmethod
    def _in_any_case(cls, value: object) -> object:
        return value if isinstance(value, CmlTrust) else str(value).lower()
