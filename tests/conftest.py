"""Which event loop a test runs on, virtual time wherever no real I/O is involved; which tests come first."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from lcm.simulator.virtual_time import VirtualTimeLoop

HERE = Path(__file__).parent
VIRTUAL_TIME = ("unit", "contract/test_kv.py")
LONGEST = HERE / "simulation" / "test_simulation.py"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    where = item.path.relative_to(HERE).as_posix()
    if where.startswith(VIRTUAL_TIME):
        return {"virtual": VirtualTimeLoop}
    return {"real": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file begins at once, so that no other waits for it in the end."""
    items.sort(key=lambda item: item.path != LONGEST)
