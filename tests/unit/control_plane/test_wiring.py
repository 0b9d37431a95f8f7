"""Subscriptions are made in one place, so that the order of the calls can be read there."""

import re
from pathlib import Path

import lcm.control_plane

SOURCE = Path(lcm.control_plane.__file__).parent


def test_only_main_makes_subscriptions() -> None:
    subscribing = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"\.subscribe(_to_\w+)?\(", path.read_text())
    }
    assert subscribing == {"main.py"}
