"""The resource scheduler: wiring, no logic. It elects a leader and does nothing yet."""

from contextlib import AbstractAsyncContextManager

from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.web.empty_controller import EmptyControllerProcess, empty_controller_process

DOES = "nothing yet: lablet sessions are not placed and no worker is requested"


def resource_scheduler_process(
    settings: ResourceSchedulerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AbstractAsyncContextManager[EmptyControllerProcess]:
    """Everything put together; run the services to bring it to life."""
    return empty_controller_process("resource-scheduler", "resource", DOES, settings, kv, clock, ids)
