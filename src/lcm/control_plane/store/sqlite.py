"""The store in one SQLite file: the embedded default.

One thread owns the writing connection and commits all writes that queued while it was busy, so many
writers share one flush to disk. `synchronous=FULL`: an acknowledged write survives a power cut.
Another thread reads. One process per file (two writing processes starve each other).
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from lcm.control_plane.store.port import (
    Change,
    Delete,
    Document,
    Fence,
    FenceBroken,
    Insert,
    Replace,
    StoredDocument,
    StoreUnavailable,
    UniqueKeyTaken,
    VersionConflict,
    WriteUnconfirmed,
)
from lcm.core.timeouts import timeout

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE documents (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    published_version INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX unpublished ON documents (kind) WHERE published_version < version;
CREATE TABLE unique_keys (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE INDEX unique_keys_by_document ON unique_keys (kind, id);
"""

ABOVE_ALL_TEXT: Final = "\U0010ffff"
"""Sorts after every id and every key."""

REFUSALS: Final = (
    VersionConflict,
    UniqueKeyTaken,
    FenceBroken,
    *(ValueError, OverflowError, sqlite3.DataError),  # values that SQLite cannot store
)
"""Errors that end one write and none of those committed with it."""

_MAX_BATCH: Final = 500
_MAX_QUEUED: Final = 10_000
_MAX_REMEMBERED: Final = 20_000
_CALL_TIMEOUT_SECONDS: Final = 10.0

Operation = Callable[[sqlite3.Connection], None]


@dataclass
class _Write:
    operation: Operation
    done: asyncio.Future[None]
    error: Exception | None = None

    def expire(self) -> None:
        if not self.done.done():
            self.done.set_exception(WriteUnconfirmed("the write was not confirmed in time"))

    def resolve(self) -> None:
        if self.done.done():
            return  # the caller was cancelled; the write is committed all the same
        if self.error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self.error)


class SqliteStore:
    """Use as `async with SqliteStore(path) as store`."""

    def __init__(self, path: Path, call_timeout_seconds: float = _CALL_TIMEOUT_SECONDS) -> None:
        self.path = path
        self._timeout_seconds = call_timeout_seconds
        self._writes: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._held_keys = _HeldKeys()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer = threading.Thread(target=self._write_forever, name="sqlite-writer", daemon=True)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="sqlite-reader")
        self._reading: sqlite3.Connection | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(self._reader, self._open)
        self._writer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writes.put(None)
        self._writer.join(timeout=self._timeout_seconds)
        if self._reading is not None:
            self._reader.submit(self._reading.close)
        self._reader.shutdown()

    async def get(self, kind: str, document_id: str) -> Document | None:
        rows = await self._read(
            "SELECT id, version, body FROM documents WHERE kind = ? AND id = ?", (kind, document_id)
        )
        return Document(kind, *rows[0]) if rows else None

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        guard = await self.get(fence.kind, fence.id)
        if guard is None or guard.version != fence.version:
            raise FenceBroken(f"{fence.kind}/{fence.id}")
        document = await self.get(kind, document_id)
        if document is None or document.version != version:
            raise VersionConflict(document_id)

    async def list_all(self, kind: str) -> Sequence[Document]:
        rows = await self._read("SELECT id, version, body FROM documents WHERE kind = ? ORDER BY id", (kind,))
        return [Document(kind, *row) for row in rows]

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        rows = await self._read(
            "SELECT id, version, body FROM documents WHERE kind = ?1 AND id IN"
            " (SELECT id FROM unique_keys WHERE kind = ?1 AND key >= ?2 AND key < ?3) ORDER BY id",
            (kind, prefix, prefix + ABOVE_ALL_TEXT),
        )
        return [Document(kind, *row) for row in rows]

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        rows = await self._read(
            "SELECT id, version, body FROM documents WHERE kind = ? AND id < ? ORDER BY id DESC LIMIT ?",
            (kind, ABOVE_ALL_TEXT if before is None else before, limit),
        )
        return [Document(kind, *row) for row in rows]

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        rows = await self._read(
            "SELECT id, version, body FROM documents"
            " WHERE kind = ? AND published_version < version ORDER BY id",
            (kind,),
        )
        return [Document(kind, *row) for row in rows]

    async def dump(self) -> Sequence[StoredDocument]:
        """Return all documents, by kind and id."""
        rows = await self._read(
            "SELECT kind, id, version, body, published_version >= version,"
            " (SELECT json_group_array(key) FROM unique_keys"
            "  WHERE unique_keys.kind = documents.kind AND unique_keys.id = documents.id)"
            " FROM documents ORDER BY kind, id",
            (),
        )
        return [
            StoredDocument(
                Document(kind, document_id, version, body, tuple(sorted(msgspec.json.decode(keys)))),
                is_published=bool(is_published),
            )
            for kind, document_id, version, body, is_published, keys in rows
        ]

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        await self._write(self._insertion(document, fence))

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        await self._write(self._replacement(document, fence))

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        await self._write(self._deletion(kind, document_id, expected_version))

    async def commit(self, change: Change, entry: Document) -> None:
        match change:
            case Insert(document, fence):
                made = self._insertion(document, fence)
            case Replace(document, fence):
                made = self._replacement(document, fence)
            case Delete(kind, document_id, version):
                made = self._deletion(kind, document_id, version)
        added = self._insertion(entry, None)

        def operation(db: sqlite3.Connection) -> None:
            with _undone_if_refused(db):
                added(db)
                made(db)  # last: what it learned of held keys is true unless the whole commit fails

        await self._write(operation)

    def _insertion(self, document: Document, fence: Fence | None) -> Operation:
        def operation(db: sqlite3.Connection) -> None:
            _check_fence(db, fence)
            if document.version != 1:
                raise VersionConflict(document.id)
            with _undone_if_refused(db) if document.unique_keys else contextlib.nullcontext():
                try:
                    db.execute(
                        "INSERT INTO documents (kind, id, version, body) VALUES (?, ?, 1, ?)",
                        (document.kind, document.id, document.body),
                    )
                except sqlite3.IntegrityError:
                    raise VersionConflict(document.id) from None
                _claim_unique_keys(db, document)

        return operation

    def _replacement(self, document: Document, fence: Fence | None) -> Operation:
        def operation(db: sqlite3.Connection) -> None:
            _check_fence(db, fence)
            if self._held_keys.are(db, document):  # almost always: names and instances rarely change
                _update(db, document)
                return
            with _undone_if_refused(db):
                _update(db, document)
                db.execute("DELETE FROM unique_keys WHERE kind = ? AND id = ?", (document.kind, document.id))
                _claim_unique_keys(db, document)
            self._held_keys.learn(document)

        return operation

    def _deletion(self, kind: str, document_id: str, expected_version: int) -> Operation:
        def operation(db: sqlite3.Connection) -> None:
            # Refused before anything is changed: nothing to undo.
            deleted = db.execute(
                "DELETE FROM documents WHERE kind = ? AND id = ? AND version = ?",
                (kind, document_id, expected_version),
            )
            if deleted.rowcount == 0:
                raise VersionConflict(document_id)
            db.execute("DELETE FROM unique_keys WHERE kind = ? AND id = ?", (kind, document_id))
            self._held_keys.forget(kind, document_id)

        return operation

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        rows = [(version, kind, document_id, version) for document_id, version in versions.items()]

        def operation(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE documents SET published_version = ?"
                " WHERE kind = ? AND id = ? AND published_version < ?",
                rows,
            )

        await self._write(operation)

    def _open(self) -> None:
        """Create or check the file, and open the reading connection, in the reader's thread."""
        try:
            # Only its owner may read it; the files beside it get the same mode from SQLite.
            self.path.touch(mode=0o600)
            self.path.chmod(0o600)
            with contextlib.closing(sqlite3.connect(self.path)) as unchanged:
                found = unchanged.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, _SCHEMA_VERSION):
                raise StoreUnavailable(
                    f"{self.path} has schema {found}, this version of LCM reads {_SCHEMA_VERSION};"
                    " use the LCM version that wrote it"
                )
            self._reading = _connect(self.path)
            if found == 0:
                self._reading.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;"
                )
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error}") from error

    async def _read(self, query: str, parameters: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        def operation() -> list[tuple[Any, ...]]:
            assert self._reading is not None
            return self._reading.execute(query, parameters).fetchall()

        assert self._loop is not None
        try:
            async with timeout(self._timeout_seconds):
                return await self._loop.run_in_executor(self._reader, operation)
        except (sqlite3.Error, TimeoutError) as error:
            raise StoreUnavailable(f"cannot read {self.path.name}: {error}") from error

    async def _write(self, operation: Operation) -> None:
        assert self._loop is not None
        if self._writes.qsize() >= _MAX_QUEUED:
            raise StoreUnavailable("too many writes are waiting; try again")
        write = _Write(operation, self._loop.create_future())
        self._writes.put(write)
        deadline = self._loop.call_later(self._timeout_seconds, write.expire)
        try:
            await write.done
        finally:
            deadline.cancel()

    def _write_forever(self) -> None:
        """Run the writer thread: collect queued writes, commit them together, then resolve their futures."""
        db = _connect(self.path)
        is_open = True
        while is_open:
            batch: list[_Write] = []
            write = self._writes.get()
            while write is not None:
                batch.append(write)
                if len(batch) == _MAX_BATCH:
                    break
                try:
                    write = self._writes.get_nowait()
                except queue.Empty:
                    break
            is_open = write is not None
            if batch:
                if not _commit(db, batch):
                    self._held_keys.forget_all()
                self._resolve(batch)
        db.close()

    def _resolve(self, batch: list[_Write]) -> None:
        """Resolve futures in the order of their commits, so that listeners are called in order."""

        def resolve_all() -> None:
            for write in batch:
                write.resolve()

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(resolve_all)
        except RuntimeError:
            return  # the loop is closed: no caller waits any more


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    return db


def _commit(db: sqlite3.Connection, batch: list[_Write]) -> bool:
    """Run one transaction for all; a refused write leaves nothing behind and stops no other."""
    try:
        db.execute("BEGIN IMMEDIATE")
        for write in batch:
            try:
                write.operation(db)
            except REFUSALS as refusal:
                write.error = refusal
        db.execute("COMMIT")
        return True
    except sqlite3.Error as error:
        for write in batch:
            write.error = StoreUnavailable(f"not written: {error}")
        if db.in_transaction:
            db.execute("ROLLBACK")
        return False


@contextlib.contextmanager
def _undone_if_refused(db: sqlite3.Connection) -> Iterator[None]:
    """Undo an operation that is refused after it has changed something. May be nested."""
    db.execute("SAVEPOINT one")
    try:
        yield
    except REFUSALS:
        db.execute("ROLLBACK TO one")
        db.execute("RELEASE one")
        raise
    db.execute("RELEASE one")


def _update(db: sqlite3.Connection, document: Document) -> None:
    updated = db.execute(
        "UPDATE documents SET version = ?, body = ? WHERE kind = ? AND id = ? AND version = ?",
        (document.version, document.body, document.kind, document.id, document.version - 1),
    )
    if updated.rowcount == 0:
        raise VersionConflict(document.id)


class _HeldKeys:
    """The unique keys of documents, as the writer has seen them: it is the only writer of the file."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def are(self, db: sqlite3.Connection, document: Document) -> bool:
        """Return whether the document holds exactly the keys it names."""
        place = (document.kind, document.id)
        held = self._known.get(place)
        if held is None:
            rows = db.execute("SELECT key FROM unique_keys WHERE kind = ? AND id = ?", place).fetchall()
            held = frozenset(key for (key,) in rows)
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[place] = held
        return len(held) == len(document.unique_keys) and held.issuperset(document.unique_keys)

    def learn(self, document: Document) -> None:
        self._known[document.kind, document.id] = frozenset(document.unique_keys)

    def forget(self, kind: str, document_id: str) -> None:
        self._known.pop((kind, document_id), None)

    def forget_all(self) -> None:
        """Drop what was learned since the last commit: it may have been rolled back."""
        self._known.clear()


def _check_fence(db: sqlite3.Connection, fence: Fence | None) -> None:
    if fence is None:
        return
    row = db.execute(
        "SELECT version FROM documents WHERE kind = ? AND id = ?", (fence.kind, fence.id)
    ).fetchone()
    if row is None or row[0] != fence.version:
        raise FenceBroken(f"{fence.kind}/{fence.id}")


def _claim_unique_keys(db: sqlite3.Connection, document: Document) -> None:
    for key in dict.fromkeys(document.unique_keys):
        try:
            db.execute(
                "INSERT INTO unique_keys (kind, key, id) VALUES (?, ?, ?)", (document.kind, key, document.id)
            )
        except sqlite3.IntegrityError:
            raise UniqueKeyTaken(key) from None
