"""The lablet controller: wiring, no logic. It elects a leader and does nothing yet."""

from contextlib import AbstractAsyncContextManager

from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.kv.port import Kv
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.web.empty_controller import EmptyControllerProcess, empty_controller_process

DOES = "nothing yet: labs are not imported, started or stopped on workers"


def lablet_controller_process(
    settings: LabletControllerSettings, kv: Kv | None, clock: Clock, ids: Ids
) -> AbstractAsyncContextManager[EmptyControllerProcess]:
    """Everything put together; run the services to bring it to life."""
    return empty_controller_process("lablet-controller", "lablet", DOES, settings, kv, clock, ids)
