"""The secret store: secrets are sealed and never part of a record, so no answer or event can contain one.

A secret has a purpose and an owner, for example the CML password of a worker. A record that needs one
is written after it: a crash in between leaves a secret that the next attempt overwrites.
"""

import asyncio

import msgspec
import structlog

from lcm.control_plane.access.sealing import KeyFile, SecretBox
from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.core.redaction import redactor
from lcm.domain.errors import Conflict

log = structlog.get_logger(__name__)

KIND = "secret"
MAX_ATTEMPTS = 8


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True):
    sealed: str


_decoder = msgspec.json.Decoder(SealedSecret)


class SecretStore:
    """Write-only for people: they can set and remove a secret, only LCM itself reads one.

    `key_file` is None if the keys come from the environment, where only an operator can change them.
    """

    def __init__(self, store: Store, box: SecretBox, key_file: KeyFile | None = None) -> None:
        self._store = store
        self._box = box
        self._key_file = key_file
        self._sealing = asyncio.Lock()  # nothing is sealed with a key that is being replaced

    @property
    def key_id(self) -> str:
        """The id of the key that seals."""
        return self._box.current

    async def put(self, purpose: str, owner_id: str, secret: str) -> None:
        redactor.protect(secret)
        place = _place(purpose, owner_id)
        async with self._sealing:
            for _ in range(MAX_ATTEMPTS):
                current = await self._store.get(KIND, place)
                version = current.version if current else 0
                try:
                    await self._write(place, version, secret)
                except VersionConflict:
                    continue
                return
        raise Conflict(f"{purpose} of {owner_id} is changed by several requests at once; try again")

    async def get(self, purpose: str, owner_id: str) -> str | None:
        """Return the secret. Raises CannotOpen if the key it was sealed with is missing."""
        place = _place(purpose, owner_id)
        document = await self._store.get(KIND, place)
        return self._open(document) if document else None

    async def has(self, purpose: str, owner_id: str) -> bool:
        return await self._store.get(KIND, _place(purpose, owner_id)) is not None

    async def remove(self, purpose: str, owner_id: str) -> None:
        for _ in range(MAX_ATTEMPTS):
            document = await self._store.get(KIND, _place(purpose, owner_id))
            if document is None:
                return
            try:
                await self._store.delete(KIND, document.id, document.version)
            except VersionConflict:
                continue
            return
        raise Conflict(f"{purpose} of {owner_id} is changed by several requests at once; try again")

    def require_key_file(self) -> KeyFile:
        """Return the file whose key can be rotated. Raises Conflict if the key is in the environment."""
        if self._key_file is None:
            raise Conflict(
                "the key comes from LCM_SECRET_KEY: put a new one before it, a comma between, and restart"
            )
        return self._key_file

    async def rotate(self) -> int:
        """Create a key, seal every secret again with it, then remove the old key; return how many.

        The file holds both keys until nothing needs the old one, so that `finish_rotation` can resume.
        """
        key_file = self.require_key_file()
        async with self._sealing:
            box = self._box.with_new_key()
            key_file.save(box)
            self._box = box
            resealed = await self._reseal()
            self._drop_old_keys()
        log.info("secret key rotated", key_id=self._box.current, resealed=resealed)
        return resealed

    async def finish_rotation(self) -> None:
        """Seal again what an older key sealed. Raises CannotOpen if that key is missing."""
        async with self._sealing:
            await self._reseal()
            self._drop_old_keys()

    def _drop_old_keys(self) -> None:
        if self._key_file is not None and len(self._box.keys) > 1:
            self._box = self._box.without_old_keys()
            self._key_file.save(self._box)

    async def _reseal(self) -> int:
        resealed = 0
        for document in await self._store.list_all(KIND):
            current: Document | None = document
            while current is not None and not self._box.is_current(_sealed(current)):
                try:
                    await self._write(current.id, current.version, self._open(current))
                    resealed += 1
                    break
                except VersionConflict:
                    current = await self._store.get(KIND, document.id)
        return resealed

    async def _write(self, place: str, version: int, secret: str) -> None:
        body = msgspec.json.encode(SealedSecret(sealed=self._box.seal(secret, belongs_to=place)))
        document = Document(KIND, place, version + 1, body)
        await (self._store.replace(document) if version else self._store.insert(document))

    def _open(self, document: Document) -> str:
        secret = self._box.open(_sealed(document), belongs_to=document.id)
        redactor.protect(secret)
        return secret


def _place(purpose: str, owner_id: str) -> str:
    return f"{purpose}/{owner_id}"


def _sealed(document: Document) -> str:
    return _decoder.decode(document.body).sealed
