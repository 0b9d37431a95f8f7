"""The resource scheduler: wiring, no logic. It elects a leader and does nothing yet."""

from contextlib import AbstractAsyncContextManager

from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.web.controller_shell import ControllerShell, controller_shell
from lcm.web.empty_controller import EmptyController


class SchedulerHostedService(EmptyController):
    """Will place lablet instances on workers and ask for more workers."""

    name = "resource-scheduler"
    metric_prefix = "resource"
    does = "nothing yet: lablet instances are not placed and no worker is asked for"


def resource_scheduler_process(
    settings: ResourceSchedulerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AbstractAsyncContextManager[ControllerShell]:
    """Everything put together; run the services to bring it to life."""
    return controller_shell(SchedulerHostedService, settings, kv, clock, ids)
