"""What the control plane can be told, by environment or by the command line."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


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
    etcd_key_prefix: str = Field("/lcm", description="Prefix of every key in the coordination store.")
    aws_region: str = Field("us-east-1", description="Region of workers whose creator names none.")
    worker_templates_auto_seed: bool = Field(True, description="Read the templates file at start.")
    worker_templates_config_path: Path = Field(
        Path("config/worker_templates.yaml"), description="Templates to seed, upserted by name."
    )
    worker_activity_events_max_stored: int = Field(
        10, ge=0, le=1_000, description="Signs of people kept with each worker, newest first."
    )
