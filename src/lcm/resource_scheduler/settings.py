"""What the resource scheduler can be told, by file, environment or command line."""

from pydantic import Field, SecretStr

from lcm.core.settings import ElectionSettings


class ResourceSchedulerSettings(ElectionSettings):
    """Environment names are the field names in upper case, unless an alias says otherwise."""

    host: str = Field(
        "127.0.0.1", validation_alias="RESOURCE_SCHEDULER_HOST", description="Address to listen on."
    )
    port: int = Field(
        8081, ge=0, le=65535, validation_alias="RESOURCE_SCHEDULER_PORT", description="0: any free one."
    )
    control_plane_api_url: str = Field("http://localhost:8080", description="Where the records are.")
    control_plane_api_key: SecretStr = Field(SecretStr(""), description="The controllers' key.")
    instance_id: str = Field(
        "auto",
        validation_alias="RESOURCE_SCHEDULER_INSTANCE_ID",
        description="Name of this instance in elections.",
    )
