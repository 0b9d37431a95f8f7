"""LCM works in the configured account, and in no other."""

import asyncio

import pytest

from lcm.domain.errors import CredentialsRefused, Unreachable
from lcm.worker_controller.adapters.account import AccountCheck
from lcm.worker_controller.settings import WorkerControllerSettings
from support.virtual_time import VirtualClock

OURS, THEIRS = "111122223333", "999988887777"


class Sts:
    """Says whose the credentials are."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.account = OURS
        self.error: Exception | None = None
        self.asked = 0
        self.takes_seconds = 0.0
        self.check = AccountCheck(OURS, self.ask, self.clock)

    async def ask(self) -> str:
        self.asked += 1
        await self.clock.sleep(self.takes_seconds)
        if self.error is not None:
            raise self.error
        return self.account


async def test_credentials_of_the_account_are_asked_about_every_ten_minutes() -> None:
    sts = Sts()
    for _ in range(5):
        await sts.check.require()
        await sts.clock.sleep(100)
    assert sts.asked == 1
    await sts.clock.sleep(200)
    await sts.check.require()
    assert sts.asked == 2


async def test_credentials_of_another_account_are_refused_until_they_agree() -> None:
    sts = Sts()
    sts.account = THEIRS
    for _ in range(3):
        with pytest.raises(CredentialsRefused, match=f"account {THEIRS} and AWS_ACCOUNT_ID is {OURS}"):
            await sts.check.require()
    assert sts.asked == 1  # not hammered
    sts.account = OURS
    await sts.clock.sleep(30)
    await sts.check.require()


async def test_after_a_refusal_the_credentials_are_asked_about_anew() -> None:
    sts = Sts()
    await sts.check.require()
    sts.account = THEIRS
    sts.check.ask_again()
    with pytest.raises(CredentialsRefused):
        await sts.check.require()


async def test_not_to_know_is_not_to_agree() -> None:
    sts = Sts()
    await sts.check.require()
    sts.error = Unreachable("STS: no answer")
    await sts.clock.sleep(700)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await sts.check.require()
    assert sts.asked == 3


async def test_who_waits_for_an_answer_that_does_not_come_does_not_ask_again_one_after_the_other() -> None:
    sts = Sts()
    sts.error, sts.takes_seconds = Unreachable("STS: timed out"), 13.0

    async def ask_in_vain() -> None:
        with pytest.raises(Unreachable):
            await sts.check.require()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(ask_in_vain())
    assert (sts.asked, sts.clock.monotonic()) == (1, 13.0)
    sts.error = None
    await sts.check.require()


@pytest.mark.parametrize("wrong", ["1111", "11112222333x", "1111-2222-3333"])
def test_an_account_is_twelve_digits(wrong: str) -> None:
    with pytest.raises(ValueError, match="aws_account_id"):
        WorkerControllerSettings(aws_account_id=wrong)
