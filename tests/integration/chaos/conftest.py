"""One site for all, because starting processes is what costs time; a test that fails gets it replaced."""

from collections.abc import Iterator

import pytest

from support.chaos import Site


class Sites:
    """Keeps the site in use."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._site: Site | None = None

    def take(self) -> Site:
        if self._site is not None and not self._site.is_proven:
            self.close()
        if self._site is None:
            self._site = Site(self._directories.mktemp("site")).__enter__()
        self._site.is_proven = False
        return self._site

    def close(self) -> None:
        if self._site is not None:
            site, self._site = self._site, None
            site.__exit__()


@pytest.fixture(scope="package")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    kept = Sites(tmp_path_factory)
    yield kept
    kept.close()


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.take()
