"""Secrets that can be recognised anywhere, and the search for them."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus

import aiohttp


@dataclass
class Canaries:
    """Secrets by name, and everything that was collected where none of them may be."""

    secrets: dict[str, str] = field(default_factory=dict)
    collected: list[tuple[str, bytes]] = field(default_factory=list)

    def collect(self, where: str, content: bytes | str) -> None:
        self.collected.append((where, content.encode() if isinstance(content, str) else content))

    def found(self) -> list[str]:
        """Every place where a secret shows, in whatever form."""
        return [
            f"{name} in {where} as {how}"
            for where, content in self.collected
            for name, secret in self.secrets.items()
            for how, form in forms(secret)
            if form in content
        ]


def forms(secret: str) -> Iterable[tuple[str, bytes]]:
    """Plain, base64 at any alignment, in addresses, in JSON, and its first eight characters."""
    yield "plain", secret.encode()
    yield "its beginning", secret[:8].encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for padding in range(3):
            encoded = encode(b"\0" * padding + secret.encode())
            yield "base64", encoded[4 if padding else 0 : -4]
    yield "address", quote(secret, safe="").encode()
    yield "address", quote_plus(secret).encode()
    yield "JSON", json.dumps(secret)[1:-1].encode()


def headers_text(headers: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in headers.items())


SHOWN_ON_PURPOSE: Final = {
    ("post", "/api/tokens"),  # once, to the user who created it
    ("get", "/api/internal/workers/{worker_id}/license-token"),  # to the controller that registers with it
    ("get", "/api/lablet-sessions/{session_id}/access"),  # to the owner of the session
    ("get", "/api/lablet-batches/{batch_id}/access"),  # to the creator of the class
}
_SHOWN: Final = [
    (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path))) for method, path in SHOWN_ON_PURPOSE
]
_SECRET_SETTING: Final = re.compile("PASSWORD|SECRET|TOKEN|API_KEY")
_SHORTEST: Final = 12
"""Anything shorter may be an ordinary word."""


class SuiteCanaries:
    """Every secret in use while a test module runs, and where one of them showed.

    Processes make their secrets known when they start, clients when they send or are given one. Logs,
    databases, keys, answers and events come here to be searched, and `tests/conftest.py` fails the test in
    which something was found.
    """

    def __init__(self) -> None:
        self._forms: dict[bytes, str] = {}
        self._found: list[str] = []

    def know(self, name: str, secret: object) -> None:
        if isinstance(secret, str) and len(secret) >= _SHORTEST:
            for how, form in forms(secret):
                if how != "its beginning":
                    self._forms.setdefault(form, f"{name} as {how}")

    def know_environment(self, environment: Mapping[str, str]) -> None:
        for name, value in environment.items():
            if _SECRET_SETTING.search(name):
                self.know(name, value)

    def know_data_dir(self, data_dir: Path) -> None:
        """The keys that LCM made there."""
        for path in (data_dir / "keys.json", data_dir / "secret-keys.json"):
            with suppress(FileNotFoundError, json.JSONDecodeError):
                for name, kept in json.loads(path.read_text()).items():
                    for secret in kept if isinstance(kept, list) else [kept]:
                        self.know(f"{name} of {path.name}", secret)

    def search(self, where: str, content: bytes | str) -> None:
        searched = content.encode() if isinstance(content, str) else content
        self._found += [f"{name} in {where}" for form, name in self._forms.items() if form in searched]

    def search_data_dir(self, data_dir: Path) -> None:
        """The bytes of the database, its journal included."""
        self.know_data_dir(data_dir)
        for path in data_dir.glob("lcm.db*"):
            with suppress(FileNotFoundError):
                self.search(path.name, path.read_bytes())

    def take_found(self) -> list[str]:
        found, self._found = sorted(set(self._found)), []
        return found

    def forget(self) -> None:
        """The secrets of a module end with its processes."""
        self._forms.clear()


suite_canaries = SuiteCanaries()


def watched_session(*arguments: Any, **options: Any) -> aiohttp.ClientSession:
    """A client whose secrets are made known, and whose answers are searched."""
    return aiohttp.ClientSession(*arguments, trace_configs=[_watching()], **options)


def _watching() -> aiohttp.TraceConfig:
    async def on_start(_: Any, __: Any, sent: aiohttp.TraceRequestStartParams) -> None:
        suite_canaries.know("bearer token", sent.headers.get("Authorization", "").removeprefix("Bearer "))
        suite_canaries.know("API key", sent.headers.get("X-API-Key"))

    async def on_body(_: Any, __: Any, sent: aiohttp.TraceRequestChunkSentParams) -> None:
        if sent.url.path.endswith(("/license", "/session")):
            suite_canaries.know(f"token sent to {sent.url.path}", _in_body(sent.chunk, "token"))
        if sent.url.path.startswith("/api/lablet-definitions"):
            login = _in_body(sent.chunk, "access")
            password = login.get("password") if isinstance(login, dict) else _in_body(sent.chunk, "password")
            suite_canaries.know("password of nodes", password)

    async def on_headers(_: Any, __: Any, given: aiohttp.TraceRequestEndParams) -> None:
        for name, value in given.response.headers.items():
            if name.lower() == "set-cookie":
                suite_canaries.know("session", value.partition("=")[2].partition(";")[0])
            else:
                suite_canaries.search(f"header {name} of {given.method} {given.url.path}", value)

    async def on_answer(_: Any, __: Any, given: aiohttp.TraceResponseChunkReceivedParams) -> None:
        if any(given.method == method and path.fullmatch(given.url.path) for method, path in _SHOWN):
            suite_canaries.know("token made", _in_body(given.chunk, "token"))
        else:
            suite_canaries.search(f"the answer to {given.method} {given.url.path}", given.chunk)

    tracing = aiohttp.TraceConfig()
    tracing.on_request_start.append(on_start)
    tracing.on_request_chunk_sent.append(on_body)
    tracing.on_request_end.append(on_headers)
    tracing.on_response_chunk_received.append(on_answer)
    return tracing


def _in_body(body: bytes, name: str) -> object:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document.get(name) if isinstance(document, dict) else None
