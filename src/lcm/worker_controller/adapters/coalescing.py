"""Many questions of the same kind become one: who asks while another waits for its turn joins it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from lcm.domain.errors import Unreachable

K = TypeVar("K")
V = TypeVar("V")


class Coalescer(Generic[K, V]):
    """Asks about single keys in batches.

    `ask` is called with the keys that gathered until it took its turn: it calls `take` once it may go
    ahead. A key it has no answer for is None to those who asked about it.
    """

    def __init__(
        self, ask: Callable[[Callable[[], Sequence[K]]], Awaitable[Mapping[K, V]]], limit: int
    ) -> None:
        self._ask = ask
        self._limit = limit
        self._gathering: dict[K, asyncio.Future[V | None]] | None = None

    async def get(self, key: K) -> V | None:
        """The answer about one key. An error of the batch is everybody's."""
        joined = self._gathering
        if joined is not None and (key in joined or len(joined) < self._limit):
            answer = joined.setdefault(key, asyncio.get_running_loop().create_future())
            return await asyncio.shield(answer)
        return await self._lead(key)

    async def _lead(self, key: K) -> V | None:
        """Ask on behalf of everybody who joins before the batch leaves."""
        batch: dict[K, asyncio.Future[V | None]] = {key: asyncio.get_running_loop().create_future()}
        self._gathering = batch

        def take() -> Sequence[K]:
            if self._gathering is batch:
                self._gathering = None
            return list(batch)

        try:
            answers = await self._ask(take)
        except BaseException as error:
            take()
            # The leader may have been cancelled for reasons of its own: the others just ask again.
            shared = error if isinstance(error, Exception) else Unreachable("the question was withdrawn")
            for waiting in batch.values():
                waiting.set_exception(shared)
                waiting.exception()  # heard; whoever waits hears it too
            raise
        for asked, waiting in batch.items():
            waiting.set_result(answers.get(asked))
        return answers.get(key)
