"""WebSocket frames as bytes, a server's half of RFC 6455: no compression, no sockets."""

import base64
import hashlib
from enum import IntEnum
from typing import Final, NamedTuple

GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX_MESSAGE: Final = 64 * 1024
"""Clients send only short messages."""


class Opcode(IntEnum):
    """Kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Message(NamedTuple):
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes


class ProtocolViolation(Exception):
    """The peer violates the protocol; `code` is the close code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"close with {code}")
        self.code = code


def accept_key(key: str) -> str:
    """The answer to a client's `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()).decode()


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """A whole message in one frame, ready for any number of connections: servers do not mask."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


def close_frame(code: int, reason: str = "") -> bytes:
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode()[:123])


class FrameReader:
    """Assembles the bytes of a client into messages."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._parts = bytearray()
        self._opcode = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        self._unread += data
        messages = []
        while (parsed := self._parse()) is not None:
            is_last, opcode, payload = parsed
            if opcode >= Opcode.CLOSE:
                messages.append(Message(opcode, payload))
                continue
            if opcode != Opcode.CONTINUATION:
                self._opcode = opcode
            self._parts += payload
            if len(self._parts) > MAX_MESSAGE:
                raise ProtocolViolation(1009)
            if is_last:
                messages.append(Message(self._opcode, bytes(self._parts)))
                self._parts.clear()
        return messages

    def _parse(self) -> tuple[bool, int, bytes] | None:
        """One frame, taken from the front; None until it is complete."""
        unread = self._unread
        if len(unread) < 2:
            return None
        first, second = unread[0], unread[1]
        if first & 0x70 or not second & 0x80:
            raise ProtocolViolation(
                1002
            )  # an extension that was not negotiated, or a client that does not mask
        size, at = second & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(unread) < 2 + width:
                return None
            size, at = int.from_bytes(unread[2 : 2 + width], "big"), 2 + width
        if size > MAX_MESSAGE:
            raise ProtocolViolation(1009)
        if len(unread) < at + 4 + size:
            return None
        mask, masked = unread[at : at + 4], unread[at + 4 : at + 4 + size]
        del unread[: at + 4 + size]
        return bool(first & 0x80), first & 0x0F, _unmasked(mask, masked)


def _unmasked(mask: bytearray, masked: bytearray) -> bytes:
    size = len(masked)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(masked, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
