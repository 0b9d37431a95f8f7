"""Which CML versions have a WebSocket feed."""

import re
from enum import Enum


class LiveFeed(Enum):
    """Whether a server has a WebSocket feed."""

    YES = "yes"
    MAYBE = "maybe"
    """It may have one: try once."""
    NO = "no"


def live_feed_of(cml_version: str | None) -> LiveFeed:
    """2.9 has one, 2.7 and 2.8 may, older ones do not. An unreadable version counts as a new one."""
    match = re.match(r"(\d+)\.(\d+)", cml_version or "")
    if match is None:
        return LiveFeed.YES
    version = int(match[1]), int(match[2])
    if version >= (2, 9):
        return LiveFeed.YES
    return LiveFeed.MAYBE if version >= (2, 7) else LiveFeed.NO
