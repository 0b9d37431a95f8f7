"""Parts of the EC2 adapter that need no wire: joining questions, naming errors."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from lcm.domain import errors
from lcm.domain.errors import Unreachable
from lcm.domain.launch import Ami, newest_image
from lcm.worker_controller.adapters.coalescing import Coalescer
from lcm.worker_controller.adapters.ec2_errors import KINDS, LONGEST_MESSAGE, translate
from support.virtual_time import VirtualClock


class Desk:
    """Answers batches, after a while; an answer is the key in capitals."""

    def __init__(self, limit: int = 100) -> None:
        self.clock = VirtualClock()
        self.batches: list[list[str]] = []
        self.error: BaseException | None = None
        self.questions: Coalescer[str, str] = Coalescer(self.ask, limit)

    async def ask(self, take: Callable[[], Sequence[str]]) -> Mapping[str, str]:
        await self.clock.sleep(1)  # for a permit
        keys = list(take())
        self.batches.append(keys)
        await self.clock.sleep(1)  # for the answer
        if self.error is not None:
            raise self.error
        return {key: key.upper() for key in keys if key != "unknown"}


class TestCoalescing:
    async def test_who_asks_while_another_waits_joins_it(self) -> None:
        desk = Desk()
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(desk.questions.get(key)) for key in ("a", "b", "a", "unknown")]
        assert [task.result() for task in asked] == ["A", "B", "A", None]
        assert desk.batches == [["a", "b", "unknown"]]

    async def test_who_asks_after_the_question_left_asks_anew(self) -> None:
        """An answer is never older than the question."""
        desk = Desk()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(desk.questions.get("a"))
            await desk.clock.sleep(1.5)
            tasks.create_task(desk.questions.get("a"))
        assert desk.batches == [["a"], ["a"]]

    async def test_a_batch_is_bounded(self) -> None:
        desk = Desk(limit=2)
        async with asyncio.TaskGroup() as tasks:
            for key in "abcde":
                tasks.create_task(desk.questions.get(key))
        assert sorted(map(len, desk.batches)) == [1, 2, 2]

    async def test_an_error_is_raised_to_all_callers(self) -> None:
        desk = Desk()
        desk.error = errors.Throttled("slow down")

        async def ask(key: str) -> str:
            with pytest.raises(errors.Throttled):
                await desk.questions.get(key)
            return key

        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(key)) for key in "abc"]
        assert len(asked) == 3

    async def test_when_the_first_caller_is_cancelled_the_others_must_repeat(self) -> None:
        desk = Desk()

        async def join() -> None:
            with pytest.raises(Unreachable, match="cancelled"):
                await desk.questions.get("b")
            assert await desk.questions.get("b") == "B"

        async with asyncio.TaskGroup() as tasks:
            leader = tasks.create_task(desk.questions.get("a"))
            await desk.clock.sleep(0.5)
            tasks.create_task(join())
            await desk.clock.sleep(0.1)
            leader.cancel()

    async def test_one_that_leaves_does_not_take_the_answer_from_the_others(self) -> None:
        desk = Desk()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(desk.questions.get("a"))
            await desk.clock.sleep(0.5)
            leaver = tasks.create_task(desk.questions.get("b"))
            other = tasks.create_task(desk.questions.get("b"))
            await desk.clock.sleep(0.1)
            leaver.cancel()
        assert (first.result(), other.result()) == ("A", "B")


class TestErrors:
    def test_every_code_of_ec2_that_heals_by_itself_is_transient(self) -> None:
        permanent = {"IdempotentParameterMismatch"} | {
            code for code, kind in KINDS.items() if kind is errors.LaunchRefused
        }
        for code, kind in KINDS.items():
            if code not in permanent | {"IdempotentInstanceTerminated"}:
                assert issubclass(kind, errors.TransientError), code

    def test_e4_a_wrong_clock_is_named_as_a_possible_cause(self) -> None:
        message = str(translate("DescribeInstances", "RequestExpired", "Request has expired.", 400))
        assert "check this host's clock" in message

    def test_a_kilobyte_of_encoded_policy_is_cut(self) -> None:
        message = str(translate("RunInstances", "UnauthorizedOperation", "x" * 5_000, 403))
        assert len(message) < LONGEST_MESSAGE + 100


def test_of_two_amis_created_at_once_all_callers_take_the_same() -> None:
    older = Ami(id="ami-9", name="CML-1", creation_date="2025")
    one = Ami(id="ami-1", name="CML-3", creation_date="2026")
    two = Ami(id="ami-2", name="CML-2", creation_date="2026")
    assert newest_image([older, one, two]) == newest_image([two, one, older]) == two
