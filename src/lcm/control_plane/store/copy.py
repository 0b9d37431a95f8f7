"""Copies an embedded installation to MongoDB: every document as it is, then compares both stores.

Versions are preserved, because an epoch is one: a leader with an old epoch stays fenced.
"""

from collections.abc import Callable, Sequence

from lcm.control_plane.store.mongodb import MongoStore
from lcm.control_plane.store.port import StoredDocument
from lcm.control_plane.store.sqlite import SqliteStore


class CopyFailed(Exception):
    """The target differs from the source; the message says what to do."""


async def copy_store(
    source: SqliteStore, target: MongoStore, on_progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Copy all documents; return how many. May be repeated after an interruption; never deletes anything."""
    wanted = await source.dump()
    _check_free(wanted, await target.dump())
    for count, stored in enumerate(wanted, start=1):
        await target.load(stored)
        on_progress(count, len(wanted))
    if await source.dump() != wanted:
        raise CopyFailed("the source changed meanwhile; stop LCM, empty the target and copy again")
    if list(await target.dump()) != list(wanted):
        raise CopyFailed("the target differs from the source; empty it and copy again")
    return len(wanted)


def _check_free(wanted: Sequence[StoredDocument], found: Sequence[StoredDocument]) -> None:
    """Raise CopyFailed unless the target holds only documents of an interrupted copy."""
    known = {(stored.document.kind, stored.document.id): stored for stored in wanted}
    for stored in found:
        if known.get((stored.document.kind, stored.document.id)) != stored:
            raise CopyFailed(
                f"the target already has {stored.document.kind} {stored.document.id};"
                " copy into an empty database"
            )
