"""Writes that go together fail as one of them alone would."""

import pytest

from lcm.control_plane.commands.together import all_of
from lcm.control_plane.store.port import StoreUnavailable


async def test_results_of_writes_that_go_together_are_in_order() -> None:
    async def double(number: int) -> int:
        return 2 * number

    assert await all_of(double(number) for number in range(5)) == [0, 2, 4, 6, 8]


async def test_a_failure_of_one_of_many_writes_is_known_by_its_type() -> None:
    """A group of failures was caught nowhere: it ended the sweep, and with it the control plane."""

    async def fail() -> None:
        raise StoreUnavailable("no answer")

    with pytest.raises(StoreUnavailable):
        await all_of([fail(), fail()])
