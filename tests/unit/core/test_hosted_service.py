"""Services live as long as their process; a loop that fails is started again."""

import pytest

from lcm.core.backoff import Backoff
from lcm.core.hosted_service import HostedService, ServiceEnded, run_services, supervise
from lcm.core.timeouts import timeout
from support.core import first_error
from support.virtual_time import VirtualClock

clock = VirtualClock()


class Service(HostedService):
    """Runs until it is cancelled, fails or returns; the diary keeps when it began and ended."""

    def __init__(
        self, name: str, diary: list[str], *, lasts: float = 1e6, error: Exception | None = None
    ) -> None:
        self.name = name
        self._diary = diary
        self._lasts = lasts
        self._error = error

    async def run(self) -> None:
        self._diary.append(f"{self.name} started")
        try:
            await clock.sleep(self._lasts)
            if self._error is not None:
                raise self._error
        finally:
            self._diary.append(f"{self.name} stopped")


async def test_services_start_in_order_and_stop_in_reverse() -> None:
    diary: list[str] = []
    names = ["one", "two", "three", "four", "five"]
    with pytest.raises(TimeoutError):
        async with timeout(10):
            await run_services(*(Service(name, diary) for name in names))
    assert diary == [f"{n} started" for n in names] + [f"{n} stopped" for n in reversed(names)]


async def test_a_service_that_dies_stops_the_others_and_its_fault_is_raised() -> None:
    diary: list[str] = []
    fault = OSError("the disk is gone")
    error = await first_error(run_services(Service("a", diary), Service("b", diary, lasts=5, error=fault)))
    assert error is fault
    assert clock.monotonic() == 5
    assert sorted(diary[2:]) == ["a stopped", "b stopped"]


async def test_a_service_that_returns_is_a_fault() -> None:
    diary: list[str] = []
    error = await first_error(run_services(Service("a", diary, lasts=5), Service("b", diary)))
    assert isinstance(error, ServiceEnded)
    assert str(error) == "a"
    assert "b stopped" in diary


class Work:
    """Fails or ends again and again; remembers when it was started."""

    def __init__(self, *, lasts: float = 0.0, error: Exception | None = None) -> None:
        self.lasts = lasts
        self.error = error
        self.starts: list[float] = []

    async def __call__(self) -> None:
        self.starts.append(clock.monotonic())
        await clock.sleep(self.lasts)
        if self.error is not None:
            raise self.error


async def supervised(work: Work, seconds: float, backoff: Backoff | None = None) -> list[float]:
    """When the work was started within so many seconds."""
    with pytest.raises(TimeoutError):
        async with timeout(seconds):
            await supervise(work, name="work", clock=clock, backoff=backoff, fatal=(LookupError,))
    return work.starts


@pytest.mark.parametrize("error", [RuntimeError("a bug"), None])
async def test_work_that_fails_or_ends_is_started_again_with_backoff(error: Exception | None) -> None:
    assert await supervised(Work(error=error), 200) == [0, 1, 3, 7, 15, 31, 63, 123, 183]


async def test_the_backoff_can_be_chosen() -> None:
    assert await supervised(Work(), 35, Backoff(base_seconds=10, max_seconds=10)) == [0, 10, 20, 30]


async def test_ten_quiet_minutes_forgive_past_failures() -> None:
    work = Work(error=RuntimeError("a bug"))
    await supervised(work, 64)  # the last wait was 32 seconds
    assert len(work.starts) == 7
    work.starts.clear()
    work.lasts = 601
    assert await supervised(work, 1_500) == [64, 64 + 602, 64 + 2 * 602]


async def test_work_that_lasts_a_while_but_not_ten_minutes_is_not_forgiven() -> None:
    assert await supervised(Work(lasts=100), 700) == [0, 101, 203, 307, 415, 531, 663]


@pytest.mark.parametrize("kind", [LookupError, KeyError])
async def test_a_fatal_error_passes_through(kind: type[Exception]) -> None:
    work = Work(lasts=3, error=kind("a newer leader"))
    with pytest.raises(kind):
        await supervise(work, name="work", clock=clock, fatal=(LookupError,))
    assert work.starts == [0]


async def test_cancelling_ends_the_supervision() -> None:
    work = Work(lasts=1_000)
    with pytest.raises(TimeoutError):
        async with timeout(1):
            await supervise(work, name="work", clock=clock)
    assert work.starts == [0]
