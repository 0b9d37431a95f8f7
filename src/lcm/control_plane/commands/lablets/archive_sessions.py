"""Keeps the list of live sessions short and the archive bounded.

An ended session moves to the archive an hour after its end: a copy first, then the original goes. A crash
between the two leaves both, and the next pass removes the original. Sessions leave the archive after a month,
the oldest sooner if there are too many.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from lcm.control_plane.commands.lablets.batches import forget_batches, sweep_batches
from lcm.control_plane.commands.lablets.change_definition import finish_replacement
from lcm.control_plane.commands.lablets.extend_session import repair_ends
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict
from lcm.domain.lablet.session import LabletSession

ARCHIVED_AFTER: Final = timedelta(hours=1)
"""Keys in the coordination store are removed then too."""
KEPT_FOR: Final = timedelta(days=30)
MAX_ARCHIVED: Final = 5_000


class Archive:
    """Moves sessions to the archive, and removes the oldest from it."""

    def __init__(self, records: Records, max_archived: int = MAX_ARCHIVED) -> None:
        self._records = records
        self._max_archived = max_archived
        self._size: int | None = None
        self._trimmed_at: datetime | None = None

    async def run_pass(self) -> None:
        """Move what has ended an hour ago; once an hour, or if there are too many, remove what is old."""
        moved = 0
        now = self._records.clock.now()
        for session in await self._records.sessions.list_all():
            if session.ended_at is not None and now - session.ended_at >= ARCHIVED_AFTER:
                await self._move(session)
                moved += 1
        if self._size is not None:
            self._size += moved
        is_full = self._size is None or self._size > self._max_archived
        if is_full or self._trimmed_at is None or now - self._trimmed_at >= ARCHIVED_AFTER:
            await self._trim(now)
            await forget_batches(self._records, before=now - KEPT_FOR)
            self._trimmed_at = now

    async def _move(self, session: LabletSession) -> None:
        with suppress(Conflict):  # a pass before ended between the two writes
            await self._records.archived_sessions.add(msgspec.structs.replace(session, version=1))
        with suppress(Conflict):  # another control plane was faster
            await self._records.sessions.purge(session)

    async def _trim(self, now: datetime) -> None:
        """Remove what is too old, and the oldest tenth if there are too many."""
        archived = sorted(
            await self._records.archived_sessions.list_all(),
            key=lambda session: session.ended_at or session.updated_at,
            reverse=True,
        )
        kept = self._max_archived if len(archived) <= self._max_archived else self._max_archived * 9 // 10
        self._size = min(len(archived), kept)
        for index, session in enumerate(archived):
            self._records.lab_times.learn(session)
            if index >= kept or now - (session.ended_at or session.updated_at) >= KEPT_FOR:
                await self._forget(session)

    async def _forget(self, session: LabletSession) -> None:
        """Remove the reservation first: without its session it could be taken over only by accident."""
        if session.reservation_id is not None:
            await self._records.session_reservations.release(session.reservation_id, session.id)
        await self._records.evidence.forget(session)
        with suppress(Conflict):
            await self._records.archived_sessions.purge(session)


async def keep_lablet_records(records: Records, policies: Policies) -> None:
    """Finish what a crash interrupted between two records. Repeating it changes nothing."""
    for stored in await records.definitions.list_all():
        await finish_replacement(records, stored, by="control plane")
    await sweep_batches(records, policies)
    await repair_ends(records)
