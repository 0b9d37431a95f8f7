"""Seals secrets for the database: AES-256-GCM with a key that is kept elsewhere.

A sealed text is `v1.<key id>.<nonce and ciphertext>`. The key id allows several keys during a rotation. The
owner of a secret is authenticated with it: a sealed text that is moved to another owner does not open.
"""

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lcm.control_plane.access.roles import write_private
from lcm.core.configuration import ConfigurationError
from lcm.core.redaction import redactor

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
MIN_DISTINCT_BYTES: Final = 16
"""Different bytes of a key; 32 random bytes have 30 of them."""


class CannotOpen(Exception):
    """The text was sealed with an unknown key or for another owner, or was modified."""


@dataclass(frozen=True, repr=False)
class SecretBox:
    """Seals with the current key, opens with any of its keys."""

    keys: Mapping[str, bytes]
    current: str
    _ciphers: dict[str, AESGCM] = field(init=False)

    def __post_init__(self) -> None:
        for key in self.keys.values():
            redactor.protect(base64.b64encode(key).decode())
        object.__setattr__(self, "_ciphers", {key_id: AESGCM(key) for key_id, key in self.keys.items()})

    @classmethod
    def of(cls, *keys: bytes) -> Self:
        """Return a box of these keys; the first one seals."""
        return cls({_key_id(key): key for key in keys}, _key_id(keys[0]))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a box of the keys of an environment variable: base64, comma-separated, the first seals."""
        keys = []
        for part in text.split(","):
            try:
                key = base64.b64decode(part.strip(), validate=True)
            except binascii.Error:
                key = b""
            if len(key) != KEY_BYTES:
                raise ConfigurationError(
                    "LCM_SECRET_KEY must be 32 bytes in base64, as 'openssl rand -base64 32' prints them;"
                    " several are separated by commas, the new one first"
                )
            keys.append(key)
        if len(set(keys[0])) < MIN_DISTINCT_BYTES:  # an old one must still open what it sealed
            raise ConfigurationError(
                "LCM_SECRET_KEY is not random: it is from an example or was typed; make one with"
                " 'openssl rand -base64 32' and put it before this one, a comma between"
            )
        return cls.of(*keys)

    def seal(self, secret: str, *, belongs_to: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self.current].encrypt(nonce, secret.encode(), belongs_to.encode())
        return f"v1.{self.current}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str, *, belongs_to: str) -> str:
        version, _, rest = sealed.partition(".")
        key_id, _, text = rest.partition(".")
        cipher = self._ciphers.get(key_id)
        if version != "v1" or cipher is None:
            raise CannotOpen(f"sealed with key {key_id!r}, which is not among {', '.join(self.keys)}")
        try:
            content = base64.urlsafe_b64decode(text)
            return cipher.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], belongs_to.encode()).decode()
        except (InvalidTag, ValueError):
            raise CannotOpen("it was modified, or belongs to another owner") from None

    def is_current(self, sealed: str) -> bool:
        return sealed.startswith(f"v1.{self.current}.")

    def with_new_key(self) -> "SecretBox":
        """Return a box that seals with a new key and still opens with the old ones."""
        return SecretBox.of(os.urandom(KEY_BYTES), *self.keys.values())

    def without_old_keys(self) -> "SecretBox":
        return SecretBox.of(self.keys[self.current])


class KeyFile:
    """The key file: readable for its owner only, created at the first start."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load_or_create(self) -> SecretBox:
        if not self._path.exists():
            box = SecretBox.of(os.urandom(KEY_BYTES))
            self.save(box)
            return box
        try:
            stored = json.loads(self._path.read_text())
            box = SecretBox.of(*(base64.b64decode(key, validate=True) for key in stored["keys"]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ConfigurationError(
                f"{self._path} is damaged ({error}); restore it from a backup: without it no secret opens"
            ) from None
        return box

    def save(self, box: SecretBox) -> None:
        """Write atomically: after any interruption the file holds a complete set of keys."""
        newest_first = [
            box.keys[box.current],
            *(key for key_id, key in box.keys.items() if key_id != box.current),
        ]
        write_private(
            self._path, json.dumps({"keys": [base64.b64encode(key).decode() for key in newest_first]})
        )


def _key_id(key: bytes) -> str:
    """Return an id that does not reveal the key."""
    return hashlib.sha256(b"lcm secret key:" + key).hexdigest()[:12]
