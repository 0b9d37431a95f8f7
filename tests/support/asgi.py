"""Requests to an ASGI application without a socket."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message


async def request(
    app: ASGIApp, method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> tuple[int, bytes]:
    """Status and body of the answer."""
    split = urlsplit(path)
    sent: list[Message] = []
    unread: list[Message] = [{"type": "http.request", "body": body or b"", "more_body": False}]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": split.path,
        "raw_path": split.path.encode(),
        "query_string": split.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Message:
        return unread.pop() if unread else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent[1:])
