"""A bound on how long a block may take: `asyncio.timeout`, as it is since Python 3.11.3.

The one before, which Debian 12 has, mistakes its own expiry for a cancellation if its task was being
cancelled already: a standby whose lease could not be revoked in time never stood for election again.
"""

import asyncio
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final


class RepairedTimeout(asyncio.Timeout):  # type: ignore[misc]  # final, for those whose version is right
    """Late is late, whatever happened to the task before."""

    async def __aenter__(self) -> "RepairedTimeout":
        await super().__aenter__()
        self._requests_before = _requests_to_end()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        is_late = self.expired() and _requests_to_end() <= self._requests_before
        if is_late and kind is asyncio.CancelledError:
            raise TimeoutError from error


def _requests_to_end() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def repaired_timeout(seconds: float | None) -> asyncio.Timeout:
    now = asyncio.get_running_loop().time()
    return RepairedTimeout(None if seconds is None else now + seconds)


timeout: Final[Callable[[float | None], asyncio.Timeout]] = (
    asyncio.timeout if sys.version_info >= (3, 11, 3) else repaired_timeout
)
