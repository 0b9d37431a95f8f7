"""Smaller answers: JSON is compressed on its way out, to clients that take gzip.

Only answers of people's routes. Controllers are close by: their connection is faster than a compressor. An
answer with an entity tag keeps its bytes, which the tag names; it is one record and small. A stream passes as
it comes. No request of another site carries the cookie (`SameSite=Strict`): another site cannot choose what
is compressed together with a secret, so the size of an answer gives nothing away.
"""

import zlib
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_BYTES: Final = 1024
"""A smaller answer fits into one packet either way."""
LEVEL: Final = 1
"""The fastest: half the time of the usual level, for answers a sixth larger."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_UNCOMPRESSED_PREFIX: Final = "/api/internal/"


def takes(headers: Headers, coding: str) -> bool:
    """Return whether a client takes answers in this coding: it names it, or all, with a weight above 0."""
    weights: dict[str, bool] = {}
    for entry in ",".join(headers.getlist("accept-encoding")).lower().split(","):
        name, _, weight = entry.partition(";")
        weights[name.strip()] = weight.replace(" ", "").removeprefix("q=").strip("0.") != "" or not weight
    return weights.get(coding, weights.get("*", False))


class Compressed:
    """ASGI middleware: gzips whole JSON answers of some size."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_UNCOMPRESSED_PREFIX):
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, is_gzip_taken=takes(Headers(scope=scope), "gzip"))
        await self._app(scope, receive, answer.send)


class _Answer:
    """Holds the head of a JSON answer back until its body is here."""

    def __init__(self, send: Send, *, is_gzip_taken: bool) -> None:
        self._send = send
        self._is_gzip_taken = is_gzip_taken
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_compressible(message):
            MutableHeaders(raw=message["headers"]).add_vary_header("Accept-Encoding")
            if self._is_gzip_taken:
                self._head = message
                return
        elif self._head is not None:
            head, self._head = self._head, None
            message = _gzipped(head, message)
            await self._send(head)
        await self._send(message)


def _is_compressible(head: Message) -> bool:
    headers = Headers(raw=head.get("headers", []))
    kind = headers.get("content-type", "").partition(";")[0]
    return kind == "application/json" and "etag" not in headers and "content-encoding" not in headers


def _gzipped(head: Message, message: Message) -> Message:
    """Return the body as it is sent, and adapt its head; one of several pieces stays as it is."""
    body: bytes = message.get("body", b"")
    if message.get("more_body", False) or len(body) < MIN_BYTES:
        return message
    compressor = zlib.compressobj(LEVEL, wbits=_GZIP_WINDOW)
    compressed = compressor.compress(body) + compressor.flush()
    headers = MutableHeaders(raw=head["headers"])
    headers["content-encoding"] = "gzip"
    headers["content-length"] = str(len(compressed))
    return {**message, "body": compressed}
