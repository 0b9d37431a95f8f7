"""Odd answers of CML to a login and to questions about its license."""

import base64

import msgspec
import pytest

from lcm.cml.connection import JSON, CmlAnswer, OnPiece
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.sessions import CmlServer
from lcm.domain.errors import Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.worker_controller.adapters.cml_licensing import CmlLicensingClient
from support.memory_live import delivered
from support.virtual_time import VirtualClock

SERVER = CmlServer(WorkerId("w-1"), InstanceId("i-1"), "10.0.0.1", None, None)
NO_TEXT = b'{"description":"\xff\xfe","registration":{"status":"\xff"}}'
TOO_DEEP = b'{"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def token_with(claims: bytes) -> bytes:
    return msgspec.json.encode(f"e30.{base64.urlsafe_b64encode(claims).decode()}.x")


class OddServer:
    """Answers a login in one way, and the rest always in another."""

    def __init__(self, status: int, body: bytes, login: bytes = token_with(b"{}")) -> None:
        self._answer = CmlAnswer(body, None, status)
        self._login = CmlAnswer(login, None)

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        return self._login if path == "/api/v0/authenticate" else delivered(self._answer, on_piece)


def session_at(server: OddServer) -> CmlSession:
    return CmlSession(server, always(Credentials("admin", "secret")), SERVER.host, None, VirtualClock())


def client_of(server: OddServer) -> CmlLicensingClient:
    session = session_at(server)
    return CmlLicensingClient(lambda _: session)


@pytest.mark.parametrize("login", [b'"\xff\xfe"', b'"a token\\nX-Other: header"', '"tökén"'.encode(), b'""'])
async def test_what_cannot_be_a_token_is_no_answer_to_a_login(login: bytes) -> None:
    with pytest.raises(Unreachable, match="without a token"):
        await session_at(OddServer(200, b"", login)).token()


@pytest.mark.parametrize("claims", [b'{"sub":"\xff"}', TOO_DEEP])
async def test_a_token_whose_claims_cannot_be_read_is_a_token(claims: bytes) -> None:
    login = token_with(claims)
    assert await session_at(OddServer(200, b"", login)).token() == msgspec.json.decode(login)


@pytest.mark.parametrize("body", [NO_TEXT, TOO_DEEP])
async def test_a_state_that_makes_no_sense_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unreachable, match="sent an invalid answer"):
        await client_of(OddServer(200, body)).state(SERVER)


@pytest.mark.parametrize("body", [NO_TEXT, TOO_DEEP])
async def test_a_refusal_counts_also_if_its_reason_cannot_be_read(body: bytes) -> None:
    client = client_of(OddServer(422, body))
    assert await client.register(SERVER, "token") == "CML answered 422"
    assert await client.deregister(SERVER, within_seconds=1.0) == "CML answered 422"
