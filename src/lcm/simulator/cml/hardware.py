"""The hardware of a CML server: the resources of its instance type, and its load."""

import math
import random
import uuid
from typing import Any, Final, NamedTuple

from lcm.simulator.cml.load import Demand
from lcm.simulator.listing import ListedInstance

GIB: Final = 1024**3
FULL_PERCENT: Final = 98.0
"""Nothing is ever fuller or busier than this."""
NO_DEMAND: Final = Demand()


class Hardware(NamedTuple):
    """The resources of an instance type."""

    vcpus: int
    memory_gib: int
    disk_gib: int
    cpu_model: str


_GRANITE: Final = "Intel(R) Xeon(R) 6975P-C"
_BURSTABLE: Final = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"

# fmt: off
HARDWARE: Final = {
    #                      vCPU   GiB  disk
    "t3.micro":   Hardware(2,      1,   64, _BURSTABLE),
    "t3.small":   Hardware(2,      2,   64, _BURSTABLE),
    "t3.medium":  Hardware(2,      4,   64, _BURSTABLE),
    "t3.large":   Hardware(2,      8,   64, _BURSTABLE),
    "c8i.2xlarge": Hardware(8,    16,   64, _GRANITE),
    "m8i.xlarge": Hardware(4,     16,   64, _GRANITE),
    "m8i.2xlarge": Hardware(8,    32,   64, _GRANITE),
    "m8i.4xlarge": Hardware(16,   64,   64, _GRANITE),
    "m5zn.metal": Hardware(48,   192,  512, "Intel(R) Xeon(R) Platinum 8252C CPU @ 3.80GHz"),
}
# fmt: on

OTHER: Final = Hardware(4, 16, 128, _BURSTABLE)
"""The resources of instance types that are not listed."""


def hardware_of(instance: ListedInstance) -> Hardware:
    """The resources of an instance: its disk is its root volume, whatever its type."""
    hardware = HARDWARE.get(instance.instance_type, OTHER)
    return hardware if instance.disk_gb is None else hardware._replace(disk_gib=instance.disk_gb)


class Load:
    """The load of one server without labs: slow waves whose shape its name decides."""

    def __init__(self, name: str) -> None:
        rng = random.Random(name)
        self._cpu = (rng.uniform(4, 12), rng.uniform(1, 3.5), rng.uniform(400, 900), rng.uniform(0, math.tau))
        self._memory = (
            rng.uniform(0.18, 0.3),
            rng.uniform(0.01, 0.04),
            rng.uniform(900, 1800),
            rng.uniform(0, math.tau),
        )
        self._disk = (rng.uniform(0.25, 0.4), 0.01, rng.uniform(7200, 14400), rng.uniform(0, math.tau))
        self.compute_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))

    def cpu_percent(self, seconds_up: float) -> float:
        return round(_wave(self._cpu, seconds_up), 2)

    def memory_share(self, seconds_up: float) -> float:
        return _wave(self._memory, seconds_up)

    def disk_share(self, seconds_up: float) -> float:
        return _wave(self._disk, seconds_up)


def system_stats(
    hardware: Hardware,
    load: Load,
    seconds_up: float,
    taken: Demand = NO_DEMAND,
    *,
    hyperthreading: bool = False,
) -> dict[str, Any]:
    """The body of `GET /system_stats` at a moment of the server's life, with what its labs take."""
    busy = 100 * taken.busy_cpus / hardware.vcpus
    percent = round(min(FULL_PERCENT, load.cpu_percent(seconds_up) + busy), 2)
    memory = _usage(hardware.memory_gib, load.memory_share(seconds_up), taken.used_memory)
    disk = _usage(hardware.disk_gib, load.disk_share(seconds_up), taken.used_disk)
    compute = {
        "hostname": "cml-controller",
        "is_controller": True,
        "stats": {
            "cpu": {
                "count": hardware.vcpus,
                "percent": percent,
                "model": hardware.cpu_model,
                "predicted": round(min(100.0, 100 * taken.allocated_cpus / hardware.vcpus)),
                "load": [
                    round(_load_average(hardware, load, seconds_up, minutes) + taken.busy_cpus, 2)
                    for minutes in (1, 5, 15)
                ],
                **({"hyperthreading": True} if hyperthreading else {}),
            },
            "memory": memory,
            "disk": disk,
            "dominfo": {
                "allocated_cpus": taken.allocated_cpus,
                "allocated_memory": taken.allocated_memory_kib,
                "total_nodes": taken.total_nodes,
                "total_orphans": 0,
                "running_nodes": taken.running_nodes,
                "running_orphans": 0,
            },
        },
    }
    return {
        "computes": {load.compute_id: compute},
        "all": {"cpu": {"count": hardware.vcpus, "percent": percent}, "memory": memory, "disk": disk},
        "controller": {"disk": disk},
    }


def _wave(shape: tuple[float, float, float, float], seconds: float) -> float:
    middle, swing, period, phase = shape
    return middle + swing * math.sin(math.tau * seconds / period + phase)


def _usage(size_gib: int, share: float, taken: float) -> dict[str, int]:
    total = size_gib * GIB
    used = int(min(total * FULL_PERCENT / 100, total * share + taken))
    return {"total": total, "free": total - used, "used": used}


def _load_average(hardware: Hardware, load: Load, seconds_up: float, minutes: int) -> float:
    """The load of the middle of the interval: close enough to its mean for slow waves."""
    return hardware.vcpus * load.cpu_percent(max(0.0, seconds_up - 30.0 * minutes)) / 100
