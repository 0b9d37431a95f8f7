"""Which CML versions have a live feed."""

import re
from enum import Enum


class LiveFeed(Enum):
    """What can be expected of a server."""

    YES = "yes"
    MAYBE = "maybe"
    """It may be there: worth one attempt."""
    NO = "no"


def live_feed_of(cml_version: str | None) -> LiveFeed:
    """2.9 has it, 2.7 and 2.8 may, older ones do not. What cannot be read is taken for a new one."""
    match = re.match(r"(\d+)\.(\d+)", cml_version or "")
    if match is None:
        return LiveFeed.YES
    version = int(match[1]), int(match[2])
    if version >= (2, 9):
        return LiveFeed.YES
    return LiveFeed.MAYBE if version >= (2, 7) else LiveFeed.NO
