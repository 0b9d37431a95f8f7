"""What is kept of a lab at its end: its topology as a file, with the configurations of its nodes.

It may hold passwords that people gave their nodes, so it is a document of its own: lists, events, logs and
audit know only its size and its digest.
"""

import hashlib
import zlib
from datetime import datetime
from typing import Final

import msgspec

MAX_PACKED_BYTES: Final = 700_000
"""In JSON this is less than the control plane takes as a body."""
MAX_TEXT_BYTES: Final = 16 * 1024 * 1024


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a session, as lists show it."""

    n: int
    """Which import of the session it is of."""
    kind: str
    at: datetime
    bytes: int
    sha256: str


class EvidenceUnusable(ValueError):
    """The text is too large, or none."""


def pack(text: str) -> bytes:
    """The text as it is sent and stored. Raises EvidenceUnusable."""
    encoded = text.encode()
    packed = zlib.compress(encoded)
    if len(encoded) > MAX_TEXT_BYTES or len(packed) > MAX_PACKED_BYTES:
        raise EvidenceUnusable(f"{len(encoded)} bytes, {len(packed)} compressed, are too many to keep")
    return packed


def unpack(packed: bytes) -> bytes:
    """The text again, however small what is packed looks. Raises EvidenceUnusable."""
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(packed, MAX_TEXT_BYTES)
    except zlib.error as error:
        raise EvidenceUnusable(str(error)) from None
    if not reader.eof:
        raise EvidenceUnusable("it is larger than what is kept, or cut")
    return text


def describe(text: bytes, *, n: int, kind: str, at: datetime) -> Evidence:
    """What lists show of a file."""
    return Evidence(n=n, kind=kind, at=at, bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
