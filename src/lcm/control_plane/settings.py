"""What the control plane can be told, by environment or by the command line."""

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from lcm.control_plane.access import Role
from lcm.control_plane.oidc import OidcConfig

DEFAULT_REQUESTS_PER_SECOND: Final = 200.0


class ControlPlaneSettings(BaseSettings):
    """Environment names are the field names in upper case."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

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
    lcm_secret_key: SecretStr | None = Field(
        None,
        description="Seals stored secrets: 32 bytes in base64; made and kept in the data directory if not"
        " given. Control planes on one store need the same. To rotate: the new one, a comma, the old one.",
    )
    etcd_key_prefix: str = Field("/lcm", description="Prefix of every key in the coordination store.")
    aws_region: str = Field("us-east-1", description="Region of workers whose creator names none.")
    worker_templates_auto_seed: bool = Field(True, description="Read the templates file at start.")
    worker_templates_config_path: Path = Field(
        Path("config/worker_templates.yaml"), description="Templates to seed, upserted by name."
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
    oidc_roles: dict[str, Literal["viewer", "operator", "admin"]] = Field(
        {"lcm-viewer": "viewer", "lcm-operator": "operator", "lcm-admin": "admin"},
        description="What each name in that claim makes of somebody, as a JSON object.",
    )

    def oidc(self) -> OidcConfig | None:
        """Whose bearer tokens count, besides LCM's own."""
        if self.oidc_issuer is None:
            return None
        roles = {name: Role[role.upper()] for name, role in self.oidc_roles.items()}
        return OidcConfig(self.oidc_issuer, self.oidc_audience, self.oidc_role_claim, roles)
