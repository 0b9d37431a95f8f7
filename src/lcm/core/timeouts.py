"""A bound on how long a block may take: `asyncio.timeout`, as it is since Python 3.11.3.

The one before, which Debian 12 has, mistakes its own expiry for a cancellation if its task was being
cancelled already: a standby whose lease could not be given back in time never stood for election again.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final


@asynccontextmanager
async def repaired_timeout(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Late is late, whatever happened to the task before."""
    task = asyncio.current_task()
    assert task is not None
    requests_before = task.cancelling()
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            yield bound
    except asyncio.CancelledError as error:
        if bound.expired() and task.cancelling() <= requests_before:
            raise TimeoutError from error
        raise


timeout: Final[Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]] = (
    asyncio.timeout if sys.version_info >= (3, 11, 3) else repaired_timeout
)
