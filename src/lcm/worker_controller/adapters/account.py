"""Whose credentials these are. Told an account, LCM looks at and acts in no other.

Credentials come from outside and can change while LCM runs: a profile edited, a role replaced. In another
account every machine of the fleet would seem to be gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lcm.core.clock import Clock
from lcm.domain.errors import CredentialsRefused, LcmError

VALID_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 30.0
"""After a mismatch: every call of the process comes by here."""


class AccountCheck:
    """Shared by all calls of a process. `ask` says whose the credentials are now."""

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
        """Raises CredentialsRefused if the credentials are another account's, or whatever `ask` raises."""
        came_at = self._clock.monotonic()
        async with self._asking:
            if self._failure is not None and came_at < self._failed_at:
                raise self._failure  # it was asked on behalf of everybody who waited
            if self._clock.monotonic() >= self._valid_until:
                self._found = await self._ask_once()
                is_ours = self._found == self._expected
                valid_seconds = VALID_SECONDS if is_ours else RETRY_SECONDS
                self._valid_until = self._clock.monotonic() + valid_seconds
        if self._found != self._expected:
            raise CredentialsRefused(
                f"the AWS credentials belong to account {self._found} and AWS_ACCOUNT_ID says"
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
        """The credentials were refused: whoever comes next may be somebody else."""
        self._valid_until = float("-inf")
