"""Decisions that depend on how many workers there are, taken one at a time by several control planes.

Two pauses decided at once must not share the last worker that may go, nor two new workers the last place in
a region, whichever control planes decide. A command that changes the number reserves the change first, by a
compare-and-set on one small document that every control plane reads before it counts. A reservation counts as
done until it is released, after the change is committed; one that a crash left behind expires.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from lcm.control_plane.store.port import Document, Store, StoreUnavailable, VersionConflict
from lcm.core.clock import Clock
from lcm.domain.errors import Conflict

log = structlog.get_logger(__name__)

KIND: Final = "turn"
MAX_ATTEMPTS: Final = 8
EXPIRES: Final = timedelta(minutes=5)
"""Longer than any started change takes."""

Reserved = Mapping[str, datetime]
"""The reserved changes of other requests, and since when."""


class ReservationList(msgspec.Struct, frozen=True, kw_only=True):
    reserved: dict[str, datetime] = {}


_decoder = msgspec.json.Decoder(ReservationList)


class Reservations:
    """One document per decision, by name."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def reserve(
        self, name: str, key: str, judge: Callable[[Reserved], Awaitable[str | None]]
    ) -> AsyncIterator[str | None]:
        """Yield why the change is refused, or None while it is reserved.

        `judge` counts, with the reservations of others taken as done. It may be called several times.
        """
        async with self._locks.setdefault(
            name, asyncio.Lock()
        ):  # requests in one process wait instead of retrying
            refusal = await self._take(name, key, judge)
            try:
                yield refusal
            finally:
                if refusal is None:
                    await self._release(name, key)

    async def _take(
        self, name: str, key: str, judge: Callable[[Reserved], Awaitable[str | None]]
    ) -> str | None:
        for _ in range(MAX_ATTEMPTS):
            version, others = await self._read(name, key)
            refusal = await judge(others)
            if refusal is not None:
                return refusal
            if await self._write(name, version, {**others, key: self._clock.now()}):
                return None
        raise Conflict("several control planes decide at once; try again")

    async def _release(self, name: str, key: str) -> None:
        """Release the reservation; one that cannot be released expires, since its change is committed."""
        try:
            for _ in range(MAX_ATTEMPTS):
                version, others = await self._read(name, key)
                if await self._write(name, version, others):
                    return
        except StoreUnavailable as error:
            log.warning("reservation not released; it expires", what=name, key=key, error=str(error))

    async def _read(self, name: str, key: str) -> tuple[int, dict[str, datetime]]:
        """Return the document's version and the reservations of others."""
        document = await self._store.get(KIND, name)
        if document is None:
            return 0, {}
        since = self._clock.now() - EXPIRES
        reserved = _decoder.decode(document.body).reserved
        return document.version, {k: at for k, at in reserved.items() if k != key and at > since}

    async def _write(self, name: str, version: int, reserved: dict[str, datetime]) -> bool:
        document = Document(KIND, name, version + 1, msgspec.json.encode(ReservationList(reserved=reserved)))
        try:
            await (self._store.replace(document) if version else self._store.insert(document))
        except VersionConflict:
            return False
        return True
