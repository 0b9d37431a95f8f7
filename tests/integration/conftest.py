"""LCM as a user starts it, once per module, and a person who may do everything."""

from collections.abc import AsyncIterator, Iterator

import pytest

from support.api import Api, Console, admin_of, console_of
from support.processes import RunningLcm, running_lcm


@pytest.fixture(scope="module")
def lcm() -> Iterator[RunningLcm]:
    with running_lcm("--workers", "0") as running:
        yield running


@pytest.fixture
async def api(lcm: RunningLcm) -> AsyncIterator[Api]:
    async with admin_of(lcm) as person:
        yield person


@pytest.fixture
async def console(lcm: RunningLcm) -> AsyncIterator[Console]:
    assert lcm.ready.aws_endpoint is not None
    async with console_of(lcm.ready.aws_endpoint) as aws:
        yield aws
