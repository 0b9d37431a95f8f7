"""A controller judges the times that the control plane recorded by the control plane's clock."""

from datetime import timedelta

from lcm.rest.plane_clock import PlaneClock
from support.virtual_time import VirtualClock, WrongClock

FAST = timedelta(minutes=5)
TRUE = VirtualClock()


async def test_a_controller_whose_clock_is_fast_shows_the_time_of_the_control_plane() -> None:
    clock = PlaneClock(WrongClock(FAST))
    assert clock.now() == TRUE.now() + FAST
    clock.learn(TRUE.now(), asked=clock.monotonic())
    await clock.sleep(3_600)
    assert clock.now() == TRUE.now()


async def test_an_answer_that_took_long_changes_nothing_that_is_known_better() -> None:
    clock = PlaneClock(WrongClock(FAST))
    clock.learn(TRUE.now(), asked=clock.monotonic())
    asked, answered_at = clock.monotonic(), TRUE.now()
    await clock.sleep(4)
    clock.learn(answered_at, asked=asked)
    assert clock.now() == TRUE.now()


async def test_the_first_answer_that_took_long_is_corrected_by_a_quick_one() -> None:
    clock = PlaneClock(WrongClock(FAST))
    asked, answered_at = clock.monotonic(), TRUE.now()
    await clock.sleep(4)
    clock.learn(answered_at, asked=asked)
    assert clock.now() == TRUE.now() - timedelta(seconds=4)
    clock.learn(TRUE.now(), asked=clock.monotonic())
    assert clock.now() == TRUE.now()


async def test_a_clock_of_the_control_plane_that_is_set_anew_is_followed() -> None:
    clock = PlaneClock(VirtualClock())
    for error in (timedelta(hours=1), timedelta(hours=-1), timedelta()):
        clock.learn(TRUE.now() + error, asked=clock.monotonic())
        assert clock.now() == TRUE.now() + error


async def test_a_control_plane_whose_answers_have_no_time_leaves_the_own_clock() -> None:
    clock = PlaneClock(WrongClock(FAST))
    clock.learn(None, asked=clock.monotonic())
    assert clock.now() == TRUE.now() + FAST
