"""Which event loop a test runs on, virtual time wherever no real I/O is involved; which tests come first.

And what every test has to keep: no secret of any process shows in what LCM says, writes or keeps.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, settings

from support.canaries import suite_canaries
from support.virtual_time import VirtualTimeLoop

HERE = Path(__file__).parent
VIRTUAL_TIME = ("unit", "contract/test_kv.py")
LONGEST = HERE / "simulation" / "test_simulation.py"
WAITING = HERE / "integration"

# Unconfigured, structlog draws every traceback with all its variables, which takes a second.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(colors=False),
    ]
)


# A busy machine is no fault of an example: nothing here is judged by the time it took. The suite draws the
# same examples every time, so that it is as green as the change before; `make explore` draws others.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", BUSY, derandomize=True)
settings.register_profile("explore", BUSY, print_blob=True)
settings.load_profile("suite")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    where = item.path.relative_to(HERE).as_posix()
    if where.startswith(VIRTUAL_TIME):
        return {"virtual": VirtualTimeLoop}
    return {"real": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file begins at once, then those that wait more than they compute: later, cores idle."""
    items.sort(key=lambda item: (item.path != LONGEST, WAITING not in item.path.parents))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What parts of LCM that run inside the test have logged."""
    report = yield
    suite_canaries.search(f"the log of {item.nodeid}", report.capstderr)
    return report


@pytest.fixture(autouse=True)
def no_secret_shows() -> Iterator[None]:
    yield
    assert suite_canaries.take_found() == [], "secrets showed"


@pytest.fixture(scope="module", autouse=True)
def no_secret_shows_in_what_a_module_leaves() -> Iterator[None]:
    """Its processes end after its last test."""
    yield
    found = suite_canaries.take_found()
    suite_canaries.forget()
    assert found == [], "secrets showed"
