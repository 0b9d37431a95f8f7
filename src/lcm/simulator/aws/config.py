"""The AWS process's command line argument and the line it prints when it is ready."""

import msgspec

from lcm.domain.template import RegionConfig
from lcm.simulator.pace import Delays, Pace


class AwsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the AWS process needs to know."""

    host: str = "127.0.0.1"
    port: int = 0
    pace: Pace
    delays: Delays = Delays()


class AwsReady(msgspec.Struct, frozen=True, kw_only=True):
    """Printed once, when every call is answered at full speed."""

    port: int
    regions: list[RegionConfig]
