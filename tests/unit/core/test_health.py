"""A loop that misses three periods is silent; a missing authority is named."""

from lcm.core.health import Health
from support.virtual_time import VirtualClock

clock = VirtualClock()


async def test_a_loop_is_silent_after_three_missed_periods() -> None:
    health = Health(clock)
    health.tick("poll", 30)
    await clock.sleep(90)
    assert health.silent_loops == []
    await clock.sleep(0.1)
    assert health.silent_loops == ["poll"]


async def test_a_silent_loop_that_ticks_is_alive_again() -> None:
    health = Health(clock)
    health.tick("poll", 30)
    await clock.sleep(100)
    health.tick("poll", 30)
    assert health.silent_loops == []


async def test_each_loop_has_its_own_period() -> None:
    health = Health(clock)
    health.tick("slow", 300)
    health.tick("quick", 1)
    health.tick("brisk", 2)
    await clock.sleep(10)
    assert health.silent_loops == ["brisk", "quick"]


async def test_a_loop_that_ended_on_purpose_is_not_silent() -> None:
    health = Health(clock)
    health.tick("poll", 1)
    health.forget("poll")
    health.forget("never there")
    await clock.sleep(10)
    assert health.silent_loops == []


async def test_missing_authorities_are_named_until_they_are_back() -> None:
    health = Health(clock)
    health.freeze("lease", "no answer")
    health.freeze("credentials", "expired")
    health.freeze("lease", "still no answer")
    assert health.freeze_reasons == ["credentials: expired", "lease: still no answer"]
    health.thaw("credentials")
    health.thaw("never frozen")
    assert health.freeze_reasons == ["lease: still no answer"]
