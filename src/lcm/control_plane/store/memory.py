"""The store in a dictionary: the model with which the contract suite compares the real ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lcm.control_plane.store.port import (
    Change,
    Delete,
    Document,
    Fence,
    FenceBroken,
    Insert,
    Replace,
    UniqueKeyTaken,
    VersionConflict,
)


class MemoryStore:
    """Durable for as long as the object lives."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Document] = {}
        self._published: dict[tuple[str, str], int] = {}
        self._holders: dict[tuple[str, str], str] = {}

    async def get(self, kind: str, document_id: str) -> Document | None:
        return self._documents.get((kind, document_id))

    async def list_all(self, kind: str) -> Sequence[Document]:
        return [doc for key, doc in sorted(self._documents.items()) if key[0] == kind]

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        holders = {
            holder
            for (of_kind, key), holder in self._holders.items()
            if of_kind == kind and key.startswith(prefix)
        }
        return [self._documents[kind, id_] for id_ in sorted(holders)]

    async def list_newest(self, kind: str, before: str | None, limit: int) -> Sequence[Document]:
        ids = sorted(
            (id_ for of_kind, id_ in self._documents if of_kind == kind and (before is None or id_ < before)),
            reverse=True,
        )
        return [self._documents[kind, id_] for id_ in ids[:limit]]

    async def insert(self, document: Document, fence: Fence | None = None) -> None:
        self._check_fence(fence)
        if document.version != 1 or (document.kind, document.id) in self._documents:
            raise VersionConflict(document.id)
        self._save(document)

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        self._check_fence(fence)
        current = self._documents.get((document.kind, document.id))
        if current is None or current.version != document.version - 1:
            raise VersionConflict(document.id)
        self._save(document)

    async def verify(self, kind: str, document_id: str, version: int, fence: Fence) -> None:
        self._check_fence(fence)
        current = self._documents.get((kind, document_id))
        if current is None or current.version != version:
            raise VersionConflict(document_id)

    async def delete(self, kind: str, document_id: str, expected_version: int) -> None:
        current = self._documents.get((kind, document_id))
        if current is None or current.version != expected_version:
            raise VersionConflict(document_id)
        self._release_keys(kind, document_id)
        del self._documents[kind, document_id]
        self._published.pop((kind, document_id), None)

    async def commit(self, change: Change, entry: Document) -> None:
        match change:
            case Insert(document, fence):
                await self.insert(document, fence)
            case Replace(document, fence):
                await self.replace(document, fence)
            case Delete(kind, document_id, version):
                await self.delete(kind, document_id, version)
        self._save(entry)

    async def list_unpublished(self, kind: str) -> Sequence[Document]:
        return [
            doc for doc in await self.list_all(kind) if self._published.get((kind, doc.id), 0) < doc.version
        ]

    async def mark_published(self, kind: str, versions: Mapping[str, int]) -> None:
        for document_id, version in versions.items():
            if (kind, document_id) in self._documents:
                key = (kind, document_id)
                self._published[key] = max(version, self._published.get(key, 0))

    def _check_fence(self, fence: Fence | None) -> None:
        if fence is None:
            return
        guard = self._documents.get((fence.kind, fence.id))
        if guard is None or guard.version != fence.version:
            raise FenceBroken(f"{fence.kind}/{fence.id}")

    def _save(self, document: Document) -> None:
        for key in document.unique_keys:
            if self._holders.get((document.kind, key), document.id) != document.id:
                raise UniqueKeyTaken(key)
        self._release_keys(document.kind, document.id)
        for key in document.unique_keys:
            self._holders[document.kind, key] = document.id
        self._documents[document.kind, document.id] = replace(document, unique_keys=())

    def _release_keys(self, kind: str, document_id: str) -> None:
        self._holders = {
            key: holder for key, holder in self._holders.items() if key[0] != kind or holder != document_id
        }
