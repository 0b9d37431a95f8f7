"""What would stop a launch: the findings of `lcm doctor`, and the rules behind them.

A finding is three-valued (docs/adr/0004): what could not be checked is unknown, and never counts as fine.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address, ip_network
from itertools import takewhile
from typing import Final

import msgspec

MAX_CLOCK_SKEW: Final = timedelta(seconds=60)
"""AWS refuses requests from five minutes on; a clock this wrong is not synchronized and gets there."""
MIN_FREE_BYTES: Final = 1024**3
"""For the records, their journal and a copy of both."""
STANDARD_FAMILIES: Final = frozenset({"a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"})
"""The instance families whose vCPUs share one quota: "Running On-Demand Standard instances"."""


class Verdict(StrEnum):
    """The result of one check."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be checked."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check, and what to do about it."""

    check: str
    verdict: Verdict
    detail: str


def ok(check: str, detail: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, detail=detail)


def failed(check: str, detail: str) -> Finding:
    return Finding(check=check, verdict=Verdict.FAILED, detail=detail)


def unknown(check: str, detail: str) -> Finding:
    return Finding(check=check, verdict=Verdict.UNKNOWN, detail=detail)


class Subnet(msgspec.Struct, frozen=True, kw_only=True):
    """A subnet, as EC2 describes it."""

    id: str
    state: str
    zone: str
    network: str
    """Its addresses, as a CIDR block."""
    free_addresses: int
    gives_public_addresses: bool


class Ingress(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a security group: who may connect to which ports."""

    protocol: str
    """`tcp`, or `-1` for all."""
    first_port: int
    last_port: int
    networks: tuple[str, ...]
    """CIDR blocks."""
    others: tuple[str, ...] = ()
    """Security groups and prefix lists, whose addresses are not known here."""

    def covers(self, port: int) -> bool:
        is_tcp = self.protocol == "tcp" and self.first_port <= port <= self.last_port
        return is_tcp or self.protocol == "-1"


def judge_clock(skew: timedelta | None) -> Finding:
    """`skew` is how far this host's clock is from AWS's; None if AWS sent no time."""
    if skew is None:
        return unknown("clock", "AWS sent no time to compare with")
    if abs(skew) <= MAX_CLOCK_SKEW:
        return ok("clock", f"within {MAX_CLOCK_SKEW.total_seconds():.0f} s of AWS's")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    return failed(
        "clock",
        f"this host is {abs(skew).total_seconds():.0f} s {direction} AWS, which refuses requests from 300 s"
        " on: synchronize the clock (NTP)",
    )


def judge_subnet(check: str, subnet: Subnet | None, without_public_address: Sequence[str]) -> Finding:
    """`without_public_address` names the templates whose workers are reached at a public address and get
    one only if the subnet gives it."""
    if subnet is None:
        return failed(check, "there is no such subnet; correct aws_region_configs")
    if subnet.state != "available":
        return failed(check, f"it is {subnet.state}")
    if subnet.free_addresses < 1:
        return failed(check, "it has no free address")
    if not subnet.gives_public_addresses and without_public_address:
        return failed(
            check,
            f"it gives no public address, and workers of {_joined(without_public_address)} would be reached"
            " at their private one: say associate_public_ip: true in the template, or set"
            " USE_PRIVATE_IP_FOR_MONITORING=true if this host reaches private addresses",
        )
    return ok(check, f"{subnet.zone}, {subnet.free_addresses} free addresses")


def judge_ingress(check: str, rules: Sequence[Ingress], port: int, source: str | None) -> Finding:
    """Whether the rules let `source` connect to the port; None: the address of this host is not known."""
    covering = [rule for rule in rules if rule.covers(port)]
    networks = [ip_network(network) for rule in covering for network in rule.networks]
    others = [other for rule in covering for other in rule.others]
    if source is None:
        if any(network.prefixlen == 0 for network in networks):
            return ok(check, f"port {port} is open to every address")
        return unknown(check, "this host's address as AWS sees it is not known: name it with --from ADDRESS")
    if any(ip_address(source) in network for network in networks):
        return ok(check, f"{source} may connect to port {port}")
    if others:
        return unknown(
            check,
            f"no rule names {source} for port {port}; {_joined(others)} may contain it: see in the console",
        )
    return failed(check, f"no rule lets {source} connect to port {port}: add one to a security group")


def family_of(instance_type: str) -> str:
    """The letters by which EC2 counts an instance type: `m` of m8i.2xlarge."""
    return "".join(takewhile(str.isalpha, instance_type))


def judge_quota(check: str, limit: float, used: int, needed: Mapping[str, int]) -> Finding:
    """`needed` has the vCPUs of one worker of each template."""
    free = limit - used
    too_big = [f"{name} ({vcpus})" for name, vcpus in sorted(needed.items()) if vcpus > free]
    have = f"{used} of {limit:g} vCPUs are in use"
    if too_big:
        return failed(
            check,
            f'{have}, too few are free for {_joined(too_big)}: request more of "Running On-Demand Standard'
            ' instances" in Service Quotas, or disable the templates',
        )
    return ok(check, have)


def judge_disk(check: str, free_bytes: int) -> Finding:
    free = f"{free_bytes / 1024**3:.1f} GiB free"
    if free_bytes < MIN_FREE_BYTES:
        return failed(check, f"{free}, below {MIN_FREE_BYTES / 1024**3:.0f} GiB: make room")
    return ok(check, free)


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)
