"""What the control plane can be told, by environment or by the command line."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from lcm.core.settings import CoordinationSettings


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

    @field_validator("store_url")
    @classmethod
    def _is_of_mongodb(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("write mongodb://host/database, or leave it out to keep records in a file")
        return url
