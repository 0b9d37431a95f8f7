"""One ensemble for all tests, because starting processes is what costs time; each finds it whole."""

from collections.abc import AsyncIterator, Iterator

import pytest

from support.ha import Ensemble, Life


@pytest.fixture(scope="package")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with Ensemble(tmp_path_factory.mktemp("ha")) as running:
        yield running


@pytest.fixture
async def life(ensemble: Ensemble) -> AsyncIterator[Life]:
    ensemble.restore()
    async with ensemble.life() as life:
        yield life
