"""CloudWatch metrics of an instance: a function of the instance and the time, nothing is stored.

The load equals what the CML server on the instance reports while no lab runs. The image has no
CloudWatch agent, so there are no metrics of memory or disk usage.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from lcm.simulator.cml.hardware import Load

NAMESPACE: Final = "AWS/EC2"
DIMENSION: Final = "InstanceId"

BYTES_PER_SECOND: Final = {
    "NetworkIn": 52_000.0,
    "NetworkOut": 31_000.0,
    "EBSReadBytes": 9_000.0,
    "EBSWriteBytes": 24_000.0,
}
"""On average; the fifth kind, CPUUtilization, is a percentage."""


class Measured(NamedTuple):
    """One value and the Unix second at which its period begins."""

    at: float
    value: float


class Subject(NamedTuple):
    """What the metrics of a running instance depend on."""

    seed: int
    private_ip: str
    running_since: float


def measure(
    subject: Subject, metric: str, statistic: str, *, start: float, end: float, period: float
) -> Iterator[Measured]:
    """The values of every period between start and end in which the instance ran, oldest first."""
    if metric != "CPUUtilization" and metric not in BYTES_PER_SECOND:
        return
    load = Load(f"{subject.seed}/load/{subject.private_ip}")
    at = math.floor(start / period) * period
    while at < end:
        middle = at + period / 2 - subject.running_since
        if at + period > subject.running_since:
            percent = load.cpu_percent(max(0.0, middle))
            yield Measured(
                at, percent if metric == "CPUUtilization" else _bytes(metric, percent, statistic, period)
            )
        at += period


def _bytes(metric: str, percent: float, statistic: str, period: float) -> float:
    """Traffic follows the load; a sum is over the whole period, other statistics are per minute."""
    rate = BYTES_PER_SECOND[metric] * percent / 8
    return round(rate * (period if statistic == "Sum" else 60))
