"""Coalesce calls of the same kind: a call that comes while another waits for its permit joins it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from lcm.domain.errors import Unreachable

K = TypeVar("K")
V = TypeVar("V")


class Coalescer(Generic[K, V]):
    """Answers calls for single keys in batches.

    `ask` calls `take` once it has its permit, and gets the keys that gathered until then. A key without
    an answer is None to its callers.
    """

    def __init__(
        self, ask: Callable[[Callable[[], Sequence[K]]], Awaitable[Mapping[K, V]]], limit: int
    ) -> None:
        self._ask = ask
        self._limit = limit
        self._gathering: dict[K, asyncio.Future[V | None]] | None = None

    async def get(self, key: K) -> V | None:
        """The answer for one key. An error of the batch is raised to all its callers."""
        joined = self._gathering
        if joined is not None and (key in joined or len(joined) < self._limit):
            answer = joined.setdefault(key, asyncio.get_running_loop().create_future())
            return await asyncio.shield(answer)
        return await self._lead(key)

    async def _lead(self, key: K) -> V | None:
        """Make the call for all that join before the batch is taken."""
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
            # The first caller may have been cancelled for reasons of its own: the others just repeat.
            shared = error if isinstance(error, Exception) else Unreachable("the call was cancelled")
            for waiting in batch.values():
                waiting.set_exception(shared)
                waiting.exception()  # mark it as retrieved; the callers get it too
            raise
        for asked, waiting in batch.items():
            waiting.set_result(answers.get(asked))
        return answers.get(key)
