"""The settings of the lablet controller: file, environment or command line."""

from pydantic import Field, PositiveFloat, PositiveInt

from lcm.cml.settings import CmlSettings
from lcm.core.settings import ControllerSettings


class LabletControllerSettings(ControllerSettings, CmlSettings):
    """Environment names are the field names in upper case, unless an alias says otherwise."""

    host: str = Field(
        "127.0.0.1", validation_alias="LABLET_CONTROLLER_HOST", description="Address to listen on."
    )
    port: int = Field(
        8082, ge=0, le=65535, validation_alias="LABLET_CONTROLLER_PORT", description="0: any free one."
    )
    instance_id: str = Field(
        "auto",
        validation_alias="LABLET_CONTROLLER_INSTANCE_ID",
        description="Name of this instance in elections.",
    )
    reconcile_interval: PositiveFloat = Field(
        30, description="Seconds between two resyncs of all sessions, if nothing wakes the controller."
    )
    watch_debounce_seconds: float = Field(
        0.02, ge=0, description="Seconds in which changes of one session are taken together."
    )
    starts_per_worker: PositiveInt = Field(
        4, description="Changes that the CML of one worker works on at a time."
    )
    cml_lab_timeout: PositiveFloat = Field(
        60,
        description="Seconds that CML has to import a lab. A lab of an import that had no answer is waited"
        " for twice as long before another is imported.",
    )
    lab_start_timeout: PositiveFloat = Field(
        300, description="Seconds from the start of a lab until every node has booted."
    )
    restart_stopped_labs: bool = Field(
        False,
        description="Whether a lab in use that was stopped outside LCM is started again, once; people can"
        " always have it started. After a restart of the worker it is started in any case.",
    )
    labs_refresh_interval: float = Field(
        300,
        ge=0,
        description="Seconds between two listings of all labs of a worker; 0: only on request, and no leaked"
        " lab is found.",
    )
    lab_action_timeout: PositiveFloat = Field(
        180, description="Seconds that a start or stop of a lab that a person requested may take to be sent."
    )
    probe_ports: bool = Field(
        True,
        description="Connect to the granted ports of a lab before its session is ready; false if the lablet"
        " controller cannot reach ports of workers that people can.",
    )
    lab_start_minutes: float = Field(
        5,
        ge=0,
        description="Minutes before its timeslot at which a lab is imported, at least; as the control"
        " plane's.",
    )
