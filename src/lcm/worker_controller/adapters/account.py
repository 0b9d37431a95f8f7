"""The account of the AWS credentials. With AWS_ACCOUNT_ID set, LCM reads and changes no other account.

Credentials come from outside and can change while LCM runs: a profile edited, a role replaced. In another
account every instance of the fleet would seem to be gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lcm.core.clock import Clock
from lcm.domain.errors import CredentialsRefused, LcmError

VALID_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 30.0
"""After a mismatch: every call of the process passes this check."""


class AccountCheck:
    """Shared by all calls of a process. `ask` returns the present account of the credentials."""

    def __init__(self, expected: str, ask: Callable[[], Awaitable[str]], clock: Clock) -> None:
        self._expected = expected
        self._ask = ask
        self._clock = clock
        self._asking = asyncio.Lock()
        self._valid_until = float("-inf")
        self._found: str | None = None
        self._failure: LcmError | None = None
        self._failed_at = float("-inf")

    async def require(self) -> None:
        """Raise CredentialsRefused if the credentials are another account's, or whatever `ask` raises."""
        came_at = self._clock.monotonic()
        async with self._asking:
            if self._failure is not None and came_at < self._failed_at:
                raise self._failure  # the call was made for all that waited
            if self._clock.monotonic() >= self._valid_until:
                self._found = await self._ask_once()
                is_ours = self._found == self._expected
                valid_seconds = VALID_SECONDS if is_ours else RETRY_SECONDS
                self._valid_until = self._clock.monotonic() + valid_seconds
        if self._found != self._expected:
            raise CredentialsRefused(
                f"the AWS credentials belong to account {self._found} and AWS_ACCOUNT_ID is"
                f" {self._expected}; nothing is done until they agree"
            )

    async def _ask_once(self) -> str:
        self._failure = None
        try:
            return await self._ask()
        except LcmError as error:
            self._failure, self._failed_at = error, self._clock.monotonic()
            raise

    def ask_again(self) -> None:
        """Invalidate the account: refused credentials may be replaced by those of another one."""
        self._valid_until = float("-inf")
