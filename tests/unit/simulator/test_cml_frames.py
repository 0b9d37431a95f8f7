"""WebSocket frames as bytes."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.simulator.cml.ui import token_in
from lcm.simulator.cml.websocket import (
    MAX_MESSAGE,
    FrameReader,
    Message,
    Opcode,
    ProtocolViolation,
    accept_key,
    close_frame,
    frame,
)


def masked(opcode: int, payload: bytes, *, is_last: bool = True, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 65536:
        length = bytes((0x80 | 126,)) + struct.pack(">H", size)
    else:
        length = bytes((0x80 | 127,)) + struct.pack(">Q", size)
    body = bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
    return bytes((0x80 * is_last | opcode,)) + length + mask + body


@given(payload=st.binary(max_size=300), cuts=st.lists(st.integers(0, 320), max_size=5))
def test_a_message_is_read_the_same_however_its_bytes_arrive(payload: bytes, cuts: list[int]) -> None:
    data = masked(Opcode.TEXT, payload)
    reader, messages = FrameReader(), []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        messages += reader.feed(data[start:end])
    assert messages == [Message(Opcode.TEXT, payload)]


def test_fragments_are_joined_and_control_frames_may_come_between() -> None:
    data = (
        masked(Opcode.TEXT, b"to", is_last=False)
        + masked(Opcode.PING, b"?")
        + masked(Opcode.CONTINUATION, b"ken")
    )
    assert FrameReader().feed(data) == [Message(Opcode.PING, b"?"), Message(Opcode.TEXT, b"token")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(Opcode.TEXT, b"not masked"), 1002),
        (bytes((0x80 | 0x40 | Opcode.TEXT, 0x80)), 1002),
        (masked(Opcode.TEXT, b"x" * (MAX_MESSAGE + 1)), 1009),
        (
            masked(Opcode.TEXT, b"x" * MAX_MESSAGE, is_last=False) + masked(Opcode.CONTINUATION, b"x"),
            1009,
        ),
    ],
)
def test_what_is_no_websocket_is_refused_with_a_code(data: bytes, code: int) -> None:
    with pytest.raises(ProtocolViolation) as violation:
        FrameReader().feed(data)
    assert violation.value.code == code


@pytest.mark.parametrize(
    ("size", "head"), [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10), (2_000_000, 10)]
)
def test_frames_of_every_size_have_the_right_head(size: int, head: int) -> None:
    assert len(frame(Opcode.TEXT, b"x" * size)) == head + size


def test_a_close_carries_code_and_reason() -> None:
    assert close_frame(3000, "Unauthorized") == b"\x88\x0e\x0b\xb8Unauthorized"


def test_the_handshake_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("payload", "token"),
    [
        (b'{"token": "t", "client_uuid": "u"}', "t"),
        (b'{"token": 7}', None),
        (b'{"authorization": "t"}', None),
        (b'"t"', None),
        (b"eyJhbGciOi", None),
        (b"\xff\xfe", None),
        (b"[]", None),
    ],
)
def test_a_token_is_shown_in_one_way_only(payload: bytes, token: str | None) -> None:
    assert token_in(payload) == token
