"""Which event loop a test runs on: virtual time wherever no real I/O is involved."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from lcm.simulator.virtual_time import VirtualTimeLoop

VIRTUAL_TIME = ("unit", "contract/test_kv.py")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    where = item.path.relative_to(Path(__file__).parent).as_posix()
    if where.startswith(VIRTUAL_TIME):
        return {"virtual": VirtualTimeLoop}
    return {"real": uvloop.new_event_loop}
