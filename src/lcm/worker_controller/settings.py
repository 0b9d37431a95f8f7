"""What the worker controller can be told, by environment or by the command line."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field, PositiveFloat, SecretStr

from lcm.core.settings import ElectionSettings


class WorkerControllerSettings(ElectionSettings):
    """Environment names are the field names in upper case, unless an alias says otherwise."""

    host: str = Field(
        "127.0.0.1", validation_alias="WORKER_CONTROLLER_HOST", description="Address to listen on."
    )
    port: int = Field(
        8083, ge=0, le=65535, validation_alias="WORKER_CONTROLLER_PORT", description="0: any free one."
    )
    control_plane_api_url: str = Field("http://localhost:8080", description="Where the records are.")
    control_plane_api_key: SecretStr = Field(SecretStr(""), description="The controllers' key.")
    worker_controller_instance_id: str = Field("auto", description="Name of this instance in elections.")

    reconcile_interval: PositiveFloat = Field(30.0, description="Seconds between looks at everything.")
    reconcile_polling_enabled: bool = Field(True, description="Off: only changes wake the controller.")
    watch_debounce_seconds: PositiveFloat = Field(
        0.5, description="Seconds in which further changes of a worker are merged into one look."
    )
    wait_seconds: PositiveFloat = Field(
        2.0,
        validation_alias="WORKER_WAIT_SECONDS",
        description="Seconds between looks at a worker on its way.",
    )
    provisioning_timeout_seconds: PositiveFloat = Field(
        900.0, description="Seconds from PENDING to RUNNING before a worker is FAILED."
    )

    regions_config_path: Path = Field(Path("config/regions.yaml"), description="aws_region_configs.")
    environment_tag: str = Field(
        "production", validation_alias="LCM_ENVIRONMENT", description="Value of the tag cml-environment."
    )
    aws_endpoint_url: str | None = Field(None, description="Another EC2 endpoint than AWS itself.")
    use_private_ip_for_monitoring: bool = Field(False, description="Reach CML at the private address.")
    cml_port: int = Field(
        443, ge=1, le=65535, validation_alias="CML_WORKER_API_PORT", description="CML's HTTPS port."
    )

    @property
    def provisioning_timeout(self) -> timedelta:
        return timedelta(seconds=self.provisioning_timeout_seconds)
