"""Moves an embedded installation to MongoDB: every document as it is, then looks whether it arrived.

Versions are kept, because an epoch is one: a leader that still believes in an old epoch stays fenced.
"""

from collections.abc import Callable, Sequence

from lcm.control_plane.store.mongodb import MongoStore
from lcm.control_plane.store.port import StoredDocument
from lcm.control_plane.store.sqlite import SqliteStore


class CopyFailed(Exception):
    """The target is not what the source is; the message says what to do."""


async def copy_store(
    source: SqliteStore, target: MongoStore, on_progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """How many documents there are. Can be repeated after an interruption; never deletes anything."""
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
    """What an interrupted copy left may stay; anything else is somebody's."""
    known = {(stored.document.kind, stored.document.id): stored for stored in wanted}
    for stored in found:
        if known.get((stored.document.kind, stored.document.id)) != stored:
            raise CopyFailed(
                f"the target already has {stored.document.kind} {stored.document.id};"
                " copy into an empty database"
            )
