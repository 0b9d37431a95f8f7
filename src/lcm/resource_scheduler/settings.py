"""The settings of the resource scheduler: file, environment or command line."""

from pydantic import Field

from lcm.core.settings import ControllerSettings


class ResourceSchedulerSettings(ControllerSettings):
    """Environment names are the field names in upper case, unless an alias says otherwise."""

    host: str = Field(
        "127.0.0.1", validation_alias="RESOURCE_SCHEDULER_HOST", description="Address to listen on."
    )
    port: int = Field(
        8081, ge=0, le=65535, validation_alias="RESOURCE_SCHEDULER_PORT", description="0: any free one."
    )
    instance_id: str = Field(
        "auto",
        validation_alias="RESOURCE_SCHEDULER_INSTANCE_ID",
        description="Name of this instance in elections.",
    )
    reconcile_interval: float = Field(
        30, gt=0, description="Seconds between two decision cycles, if nothing wakes the scheduler."
    )
    watch_debounce_seconds: float = Field(
        0.02, ge=0, description="Seconds in which changes of one session or worker are taken together."
    )
    timeslot_manager_interval_seconds: float = Field(
        60, gt=0, description="Seconds between two scans for windows that open or close."
    )
