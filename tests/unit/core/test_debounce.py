"""The first event acts at once, the following ones are merged into one run a window."""

from lcm.core.debounce import Debounce
from support.virtual_time import VirtualClock

clock = VirtualClock()


class Runs:
    """When an event for a key leads to a run; what is due at one instant is one run, as in the queue."""

    def __init__(self) -> None:
        self._debounce: Debounce[str] = Debounce(0.5, clock)
        self._due: set[tuple[str, float]] = set()

    def event(self, key: str = "a") -> None:
        delay = self._debounce.delay_seconds(key)
        if delay is not None:
            self._due.add((key, round(clock.monotonic() + delay, 6)))

    async def events(self, count: int, every_seconds: float) -> None:
        for _ in range(count):
            self.event()
            await clock.sleep(every_seconds)

    def of(self, key: str = "a") -> list[float]:
        return sorted(at for name, at in self._due if name == key)


async def test_the_first_event_runs_at_once() -> None:
    runs = Runs()
    await clock.sleep(3)
    runs.event()
    assert runs.of() == [3.0]


async def test_a_burst_costs_two_runs() -> None:
    runs = Runs()
    await runs.events(100, every_seconds=0.001)
    assert runs.of() == [0.0, 0.5]


async def test_events_at_one_instant_cost_two_runs() -> None:
    runs = Runs()
    for _ in range(10):
        runs.event()
    assert runs.of() == [0.0, 0.5]


async def test_a_steady_stream_costs_one_run_a_window() -> None:
    runs = Runs()
    await runs.events(40, every_seconds=0.07)  # for 2.8 seconds
    assert runs.of() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


async def test_an_event_after_the_merged_run_waits_for_the_next_window() -> None:
    runs = Runs()
    runs.event()
    await clock.sleep(0.1)
    runs.event()
    await clock.sleep(0.5)
    runs.event()
    assert runs.of() == [0.0, 0.5, 1.0]


async def test_a_key_that_was_quiet_for_a_window_runs_at_once_again() -> None:
    runs = Runs()
    runs.event()
    await clock.sleep(0.5)
    runs.event()
    assert runs.of() == [0.0, 0.5]
    await clock.sleep(0.1)
    runs.event()  # merged into the end of the window that began at 0.5
    await clock.sleep(5)
    runs.event()
    assert runs.of() == [0.0, 0.5, 1.0, 5.6]


async def test_keys_do_not_delay_each_other() -> None:
    runs = Runs()
    runs.event("a")
    runs.event("b")
    assert runs.of("a") == runs.of("b") == [0.0]


async def test_keys_that_fell_quiet_are_forgotten_and_busy_ones_are_not() -> None:
    debounce: Debounce[int] = Debounce(0.5, clock)
    for key in range(2_000):
        debounce.delay_seconds(key)
    await clock.sleep(0.4)
    debounce.delay_seconds(9_999)  # busy until 0.9
    await clock.sleep(0.2)
    assert debounce.delay_seconds(0) == 0.0
    assert len(debounce._window_ends) == 2
    assert debounce.delay_seconds(9_999) != 0.0
