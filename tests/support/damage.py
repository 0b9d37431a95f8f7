"""Frames of a live feed as no server should send them."""

import random
from collections.abc import Callable

import msgspec

from support.memory_live import stats_of

LAB = "2b7f0c3a-52be-4c19-9a44-0be6f1a2d935"
NODE = "91c0f0c3-52be-4c19-9a44-0be6f1a2d935"

ORIGINALS = tuple(
    msgspec.json.encode(event)
    for event in (
        {"event_type": "system_stats", "data": stats_of()},
        {"event_type": "lab_stats", "lab_id": LAB, "data": {"nodes": {}, "links": {}}},
        {
            "event_type": "state_change",
            "lab_id": LAB,
            "element_type": "node",
            "element_id": NODE,
            "event": "QUEUED",
        },
        {
            "event_type": "lab_event",
            "lab_id": LAB,
            "event": "state",
            "data": {"state": "STARTED", "lab_title": "demo"},
        },
    )
)


def damaged_frames(chance: random.Random) -> Callable[[], bytes]:
    """Real frames with bits flipped, cut off and glued together, and plain noise."""

    def next_frame() -> bytes:
        payload = bytearray(chance.choice(ORIGINALS))
        match chance.randrange(4):
            case 0:
                for _ in range(chance.randrange(1, 8)):
                    payload[chance.randrange(len(payload))] = chance.randrange(256)
            case 1:
                del payload[chance.randrange(len(payload)) :]
            case 2:
                payload += chance.choice(ORIGINALS)
            case 3:
                return chance.randbytes(chance.randrange(200))
        return bytes(payload)

    return next_frame
