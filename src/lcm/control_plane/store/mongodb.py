"""The store in MongoDB, for several control planes at once. The reasons are in docs/adr/0012.

MongoDB without transactions changes one document at a time. Two guarantees of the port span several, and both
are given by the same means: **a mark in the document that is about to change**.

    a plain change      compare-and-set of version, keys and stamp          one step, the usual case
    new unique keys     mark ─ take the keys' locks ──────┐
    not yet stamped     mark ─ read the leadership ───────┴─ compare-and-set of version and mark

A writer that must prevent such a change removes the mark, and the change starts over: another document that
takes a lock over, or a new leader.

*Fences.* Each document is stamped with the epoch it may be written under. A claim of the next epoch raises
the stamp (and removes the mark) of every document before the new epoch is granted; a reader of an interrupted
claim finishes it first. So a document's own stamp shows whether its writer still leads.

*Unique keys.* A lock per key names the document that uses it or is about to; that document shows which.

*Entries of the log.* An entry is committed inside the document that changes, and moved to a document of its
own afterwards, or before the log is read. A removed document stays as a placeholder until its entry is moved.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

import pymongo
from bson import Binary
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, ReadPreference, UpdateOne, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)
from pymongo.read_concern import ReadConcern

from lcm.control_plane.store.port import (
    GUARD_KIND,
    LOG_KIND,
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
from lcm.core.clock import Clock
from lcm.core.ids import Ids
from lcm.core.timeouts import timeout

_SCHEMA_VERSION: Final = 1
_CALL_TIMEOUT_SECONDS: Final = 8.0
_MAX_ATTEMPTS: Final = 20
_HOLDER_PATIENCE_SECONDS: Final = 2.0
"""How long the lock of a document that is being written is respected. Only liveness depends on it."""
_PLACEHOLDER: Final = 0
"""The version of a document whose insertion is under way; reads do not show it."""

Raw = dict[str, Any]


class MongoStore:
    """Use as `async with MongoStore(url, clock, ids) as store`."""

    def __init__(self, url: str, clock: Clock, ids: Ids) -> None:
        self._url = url
        self._clock = clock
        self._ids = ids
        self._client: AsyncMongoClient[Raw] | None = None

    async def __aenter__(self) -> Self:
        self._client, database = _connect(self._url)
        self._documents = database["documents"]
        self._locks = database["unique_keys"]
        try:
            async with _deadline():
                await self._check_schema(database["schema"])
                await self._documents.create_index([("kind", ASCENDING), ("_id", ASCENDING)])
                await self._documents.create_index([("kind", ASCENDING), ("unpublished", ASCENDING)])
                await self._documents.create_index([("kind", ASCENDING), ("keys", ASCENDING)])
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()

    async def get(self, kind: str, document_id: str) -> Document | None:
        async with _deadline():
            await self._collect_entries(kind)
            raw = await self._find(_key(kind, document_id))
            return await self._shown(raw) if raw is not None and raw["version"] else None

    async def list_all(self, kind: str) -> Sequence[Document]:
        return await self._list({"kind": kind, "version": {"$gt": _PLACEHOLDER}})

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        begins_so = {"$regex": f"^{re.escape(prefix)}"}  # bounds the index, as a range does
        return await self._list({"kind": kind, "keys": begins_so, "version": {"$gt": _PLACEHOLDER}})

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        below = {} if before is None else {"_id": {"$lt": _key(kind, before)}}
        return await self._list(
            {"kind": kind, "version": {"$gt": _PLACEHOLDER}, **below}, order=DESCENDING, limit=limit
        )

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        return await self._list({"kind": kind, "unpublished": True, "version": {"$gt": _PLACEHOLDER}})

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        async with _deadline(to_write=True):
            await self._insert(document, fence, None)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        async with _deadline(to_write=True):
            await self._replace(document, fence, None)

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        async with _deadline(to_write=False):
            if fence.kind != GUARD_KIND:
                raise FenceBroken(f"{fence.kind}/{fence.id}")
            # A write that changes nothing, acknowledged by a majority: a replaced primary cannot answer.
            guard = {"_id": _key(fence.kind, fence.id), "version": fence.version}
            same = {"$set": {"version": fence.version}}
            if not (await self._documents.update_one(guard, same)).matched_count:
                raise FenceBroken(f"{fence.kind}/{fence.id}")
        document = await self.get(kind, document_id)
        if document is None or document.version != version:
            raise VersionConflict(document_id)

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        async with _deadline(to_write=True):
            where = {"_id": _key(kind, document_id), "version": expected_version}
            if (
                expected_version == _PLACEHOLDER
                or not (await self._documents.delete_one(where)).deleted_count
            ):
                raise VersionConflict(document_id)
            if kind == GUARD_KIND:
                await self._raise_stamps(document_id, expected_version + 1)

    async def commit(self, change: Change, entry: Document) -> None:
        async with _deadline(to_write=True):
            match change:
                case Insert(document, fence):
                    key = _key_of(document)
                    await self._insert(document, fence, entry)
                case Replace(document, fence):
                    key = _key_of(document)
                    await self._replace(document, fence, entry)
                case Delete(kind, document_id, version):
                    key = _key(kind, document_id)
                    await self._empty(key, version, entry)
            with suppress(PyMongoError):  # the entry is stored, and moved before the log is read
                await self._move_entries(key)

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        if not versions:
            return
        marks = [
            UpdateOne(
                {"_id": _key(kind, document_id), "version": {"$lte": version}},
                {"$set": {"unpublished": False}},
            )
            for document_id, version in versions.items()
        ]
        async with _deadline(to_write=True):
            await self._documents.bulk_write(marks, ordered=False)

    async def dump(self) -> Sequence[StoredDocument]:
        """Return all documents, by kind and id."""
        async with _deadline():
            await self._collect_entries(LOG_KIND)
            raws = self._documents.find({"version": {"$gt": _PLACEHOLDER}}, sort=[("_id", ASCENDING)])
            return [_stored(raw) async for raw in raws]

    async def load(self, stored: StoredDocument) -> None:
        """Add a document as another store had it. No other process may use this store meanwhile."""
        document = stored.document
        key = _key(document.kind, document.id)
        async with _deadline(to_write=True):
            for unique in dict.fromkeys(document.unique_keys):
                lock = {"_id": _key(document.kind, unique), "holder": key, "mark": self._ids.new_id()}
                await self._locks.replace_one({"_id": lock["_id"]}, lock, upsert=True)
            raw = {**_identity(document), **_content(document, self._ids.new_id())}
            await self._documents.replace_one(
                {"_id": key}, {**raw, "unpublished": not stored.is_published}, upsert=True
            )

    async def _check_schema(self, schemas: Any) -> None:
        schema = await schemas.find_one_and_update(
            {"_id": "schema"},
            {"$setOnInsert": {"version": _SCHEMA_VERSION}},
            upsert=True,
            return_document=pymongo.ReturnDocument.AFTER,
        )
        if schema["version"] != _SCHEMA_VERSION:
            raise StoreUnavailable(
                f"the database has schema {schema['version']}, this version of LCM reads {_SCHEMA_VERSION};"
                " use the LCM version that wrote it"
            )

    # Reading.

    async def _find(self, key: str) -> Raw | None:
        return await self._documents.find_one({"_id": key})

    async def _list(self, where: Raw, order: int = ASCENDING, limit: int = 0) -> Sequence[Document]:
        async with _deadline():
            await self._collect_entries(where["kind"])
            raws = await self._documents.find(where, sort=[("_id", order)], limit=limit).to_list()
            return [await self._shown(raw) for raw in raws]

    async def _shown(self, raw: Raw) -> Document:
        """Return the document for readers. An epoch is not shown before the last one is fenced everywhere."""
        document = Document(raw["kind"], raw["id"], raw["version"], raw["body"])
        if raw.get("claiming"):
            await self._finish_claim(document)
        return document

    # Writing in one step.

    async def _insert(self, document: Document, fence: Fence | None, entry: Document | None) -> None:
        if document.version != 1:
            await self._check(fence)
            raise VersionConflict(document.id)
        if not await self._insert_plainly(document, fence, entry):
            await self._make_placeholder(document)
            await self._write_marked(document, fence, entry)
        await self._finish_claim(document)

    async def _replace(self, document: Document, fence: Fence | None, entry: Document | None) -> None:
        if document.version < 2:
            await self._check(fence)
            raise VersionConflict(document.id)
        if not await self._replace_plainly(document, fence, entry):
            await self._write_marked(document, fence, entry)
        await self._finish_claim(document)

    async def _insert_plainly(self, document: Document, fence: Fence | None, entry: Document | None) -> bool:
        """Insert the document in one step; return False if that needs other documents."""
        if fence is not None or document.unique_keys:
            return False
        write = self._ids.new_id()
        try:
            added = {"entries": {_field(entry.id): Binary(entry.body)}} if entry is not None else {}
            await self._documents.insert_one({**_identity(document), **_content(document, write), **added})
        except DuplicateKeyError:
            return False
        except AutoReconnect:
            if not await self._has_happened(document, write):
                raise
        return True

    async def _replace_plainly(self, document: Document, fence: Fence | None, entry: Document | None) -> bool:
        """Change the document in one step, if it has its keys and the stamp of its writer; return whether."""
        where: Raw = {"version": document.version - 1}
        if document.unique_keys:
            where["keys"] = _sorted(document.unique_keys)
        if fence is not None:
            if fence.kind != GUARD_KIND:
                return False
            where[f"stamps.{_field(fence.id)}"] = fence.version
        return await self._commit(document, where, _entry_field(entry))

    async def _commit(self, document: Document, where: Raw, added: Raw) -> bool:
        """Write the document with the fields that are added to its content; return whether it was there."""
        write = self._ids.new_id()
        change = {"$set": {**_content(document, write), **added}, "$unset": {"mark": ""}}
        if not document.unique_keys:
            change["$unset"]["keys"] = ""
        try:
            result = await self._documents.update_one({"_id": _key_of(document), **where}, change)
        except AutoReconnect:  # the answer was lost; the change may have happened
            if not await self._has_happened(document, write):
                raise
            return True
        return result.matched_count == 1

    async def _has_happened(self, document: Document, write: str) -> bool:
        current = await self._find(_key_of(document))
        return current is not None and current.get("write") == write

    # Writing behind a mark.

    async def _make_placeholder(self, document: Document) -> None:
        """Create the document to mark; what an interrupted insertion left serves as well."""
        placeholder = {**_identity(document), "version": _PLACEHOLDER, "body": Binary(b"")}
        try:
            await self._documents.insert_one(placeholder)
        except DuplicateKeyError:
            return

    async def _write_marked(self, document: Document, fence: Fence | None, entry: Document | None) -> None:
        key, before = _key_of(document), document.version - 1
        for _ in range(_MAX_ATTEMPTS):
            await self._check(fence)  # a broken fence is raised before any other error
            current = await self._find(key)
            if current is None and before == _PLACEHOLDER:  # the one in its place was of a removed document
                await self._make_placeholder(document)
                continue
            if current is None or current["version"] != before:
                raise VersionConflict(document.id)
            mark = self._ids.new_id()
            at_mark: Raw = {"version": before, "mark": mark}
            marked = await self._documents.update_one(
                {"_id": key, "version": before}, {"$set": {"mark": mark}}
            )
            if not marked.matched_count:
                continue
            try:
                for unique in dict.fromkeys(document.unique_keys):
                    if unique not in current.get("keys", ()):
                        await self._take_lock(document, unique, mark)
                await self._check(fence)  # after the mark: a claim from now on removes the mark
            except (UniqueKeyTaken, FenceBroken):
                if before == _PLACEHOLDER:
                    await self._documents.delete_one({"_id": key, **at_mark, "entries": {"$exists": False}})
                raise
            stamp = {f"stamps.{_field(fence.id)}": fence.version} if fence is not None else {}
            if await self._commit(document, at_mark, {**stamp, **_entry_field(entry)}):
                return
        raise StoreUnavailable(f"several writers change {key} at once; try again")

    async def _take_lock(self, document: Document, unique: str, mark: str) -> None:
        """Take the key's lock, unless a document uses the key; one that is about to may finish first."""
        name, me = _key(document.kind, unique), _key_of(document)
        give_up_at = self._clock.monotonic() + _HOLDER_PATIENCE_SECONDS
        while True:
            try:
                await self._locks.insert_one({"_id": name, "holder": me, "mark": mark})
                return
            except DuplicateKeyError:
                lock = await self._locks.find_one({"_id": name})
            if lock is None:
                continue
            if lock["holder"] != me:
                holder = await self._find(lock["holder"])
                if _uses(holder, unique):
                    raise UniqueKeyTaken(unique)
                is_about_to = holder is not None and holder.get("mark") == lock["mark"]
                if is_about_to and self._clock.monotonic() < give_up_at:
                    await self._clock.sleep(0.01)
                    continue
                # First ensure that it will not use the key with this lock, then read whether it does.
                await self._documents.update_one(
                    {"_id": lock["holder"], "mark": lock["mark"]}, {"$unset": {"mark": ""}}
                )
                if _uses(await self._find(lock["holder"]), unique):
                    raise UniqueKeyTaken(unique)
            taken = await self._locks.update_one(
                {"_id": name, "mark": lock["mark"]}, {"$set": {"holder": me, "mark": mark}}
            )
            if taken.matched_count:
                return

    # Entries of the log.

    async def _empty(self, key: str, version: int, entry: Document) -> None:
        """Remove the content of a document; the placeholder carries the entry."""
        emptied = {"version": _PLACEHOLDER, "body": Binary(b""), "write": self._ids.new_id()}
        change = {
            "$set": {**emptied, **_entry_field(entry)},
            "$unset": {"keys": "", "mark": "", "unpublished": ""},
        }
        removed = version != _PLACEHOLDER and await self._documents.update_one(
            {"_id": key, "version": version}, change
        )
        if not removed or not removed.matched_count:
            raise VersionConflict(key)

    async def _collect_entries(self, kind: str) -> None:
        """Before the log is read: move the entries that an interrupted writer left in other documents."""
        if kind != LOG_KIND:
            return
        async for raw in self._documents.find({"entries": {"$exists": True}}, {"_id": 1}):
            await self._move_entries(raw["_id"])

    async def _move_entries(self, key: str) -> None:
        """Give each entry in this document a document of its own. Repeating it changes nothing.

        A placeholder goes in one step with its entries: without them it would never be looked for again.
        """
        holder = await self._find(key)
        if holder is None or "entries" not in holder:
            return
        for name, body in holder["entries"].items():
            entry = Document(LOG_KIND, _name(name), 1, bytes(body))
            with suppress(DuplicateKeyError):
                await self._documents.insert_one({**_identity(entry), **_content(entry, self._ids.new_id())})
        if holder["version"] == _PLACEHOLDER:
            emptied = {"version": _PLACEHOLDER, "mark": {"$exists": False}, "write": holder.get("write")}
            if (await self._documents.delete_one({"_id": key, **emptied})).deleted_count:
                return
        moved = {f"entries.{name}": "" for name in holder["entries"]}
        if moved:
            await self._documents.update_one({"_id": key}, {"$unset": moved})
        await self._documents.update_one({"_id": key, "entries": {}}, {"$unset": {"entries": ""}})

    # Epochs.

    async def _check(self, fence: Fence | None) -> None:
        if fence is None:
            return
        guard = await self._find(_key(fence.kind, fence.id)) if fence.kind == GUARD_KIND else None
        if guard is None or guard["version"] != fence.version:
            raise FenceBroken(f"{fence.kind}/{fence.id}")

    async def _finish_claim(self, document: Document) -> None:
        if document.kind != GUARD_KIND:
            return
        await self._raise_stamps(document.id, document.version)
        await self._documents.update_one(
            {"_id": _key_of(document), "version": document.version}, {"$unset": {"claiming": ""}}
        )

    async def _raise_stamps(self, guard: str, epoch: int) -> None:
        """Stamp every document, so that no write of an earlier epoch changes one from here on."""
        stamp = f"stamps.{_field(guard)}"
        await self._documents.update_many(
            {stamp: {"$not": {"$gte": epoch}}}, {"$set": {stamp: epoch}, "$unset": {"mark": ""}}
        )


async def ask_for_schema(url: str) -> int | None:
    """The version of the records there; None: there are none yet. Writes nothing. Raises StoreUnavailable."""
    client, database = _connect(url)
    try:
        async with _deadline():
            schema = await database["schema"].find_one({"_id": "schema"})
    finally:
        await client.close()
    return None if schema is None else int(schema["version"])


def _connect(url: str) -> tuple[AsyncMongoClient[Raw], AsyncDatabase[Raw]]:
    try:
        client: AsyncMongoClient[Raw] = AsyncMongoClient(
            url,
            appname="lcm",
            connectTimeoutMS=2000,
            serverSelectionTimeoutMS=3000,
            socketTimeoutMS=5000,
        )
        database = client.get_default_database("lcm").with_options(
            write_concern=WriteConcern("majority"),
            read_concern=ReadConcern("majority"),
            read_preference=ReadPreference.PRIMARY,
        )
    except (ConfigurationError, ValueError) as error:
        # The driver takes what follows a slash in a password for the database, and quotes it.
        is_quoted = "@" in str(error)
        why = "escape special characters in user and password, / as %2F" if is_quoted else error
        raise StoreUnavailable(f"the address of MongoDB is wrong: {why}") from None
    return client, database


@asynccontextmanager
async def _deadline(*, to_write: bool = False) -> AsyncIterator[None]:
    """Set one deadline for all steps of a call, and raise the port's exceptions."""
    no_answer = WriteUnconfirmed if to_write else StoreUnavailable
    try:
        async with timeout(_CALL_TIMEOUT_SECONDS):
            yield
    except (ServerSelectionTimeoutError, WaitQueueTimeoutError):
        raise StoreUnavailable("no MongoDB server that takes writes answers") from None
    except (NetworkTimeout, ExecutionTimeout, TimeoutError):
        raise no_answer("MongoDB did not answer in time") from None
    except AutoReconnect:
        raise no_answer("the connection to MongoDB was lost") from None
    except OperationFailure as error:
        raise StoreUnavailable(f"MongoDB refused: {_without_details(error)}") from None
    except PyMongoError as error:
        raise StoreUnavailable(f"MongoDB failed: {error}") from None


def _without_details(error: OperationFailure) -> str:
    """Return the error without the command that was sent."""
    details = error.details or {}
    return f"{details.get('codeName') or error.code}: {details.get('errmsg') or 'no reason given'}"


def _key(kind: str, name: str) -> str:
    return f"{kind}/{name}"


def _key_of(document: Document) -> str:
    return _key(document.kind, document.id)


def _field(name: str) -> str:
    """Return a part of a MongoDB path, with dots and dollars escaped."""
    return name.replace("%", "%25").replace(".", "%2E").replace("$", "%24")


def _name(field: str) -> str:
    """Return the name that `_field` has escaped."""
    return field.replace("%24", "$").replace("%2E", ".").replace("%25", "%")


def _entry_field(entry: Document | None) -> Raw:
    return {} if entry is None else {f"entries.{_field(entry.id)}": Binary(entry.body)}


def _sorted(keys: Sequence[str]) -> list[str]:
    return sorted(set(keys))


def _identity(document: Document) -> Raw:
    return {"_id": _key_of(document), "kind": document.kind, "id": document.id}


def _content(document: Document, write: str) -> Raw:
    content: Raw = {
        "version": document.version,
        "body": Binary(document.body),
        "unpublished": True,
        "write": write,
    }
    if document.unique_keys:
        content["keys"] = _sorted(document.unique_keys)
    if document.kind == GUARD_KIND:
        content["claiming"] = True
    return content


def _uses(raw: Raw | None, unique: str) -> bool:
    return raw is not None and unique in raw.get("keys", ())


def _stored(raw: Raw) -> StoredDocument:
    keys = tuple(raw.get("keys", ()))
    document = Document(raw["kind"], raw["id"], raw["version"], raw["body"], keys)
    return StoredDocument(document, is_published=not raw["unpublished"])
