"""A small OpenID Connect issuer: publishes its keys, signs whatever claims a test wants."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from lcm.domain.errors import Unreachable
from support.canaries import suite_canaries

AUDIENCE = "lcm"


class Issuer:
    """Keys and tokens; `documents` is what it publishes, `calls` counts the requests."""

    def __init__(self, address: str = "https://issuer.example") -> None:
        self.address = address
        self.keys: list[RSAKey | ECKey] = [RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})]
        self.is_away = False
        self.calls: list[str] = []
        self.extra: dict[str, Any] = {}

    def add_key(self, kid: str) -> None:
        self.keys.insert(0, ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}))

    def published(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.address, "jwks_uri": f"{self.address}/keys", **self.extra}
        if path == "/keys":
            return dict(KeySet(list(self.keys)).as_dict(private=False))
        return None

    async def fetch(self, address: str) -> bytes:
        self.calls.append(address)
        document = self.published(address.removeprefix(self.address))
        if self.is_away or document is None:
            raise Unreachable(f"{address}: connection refused")
        return json.dumps(document).encode()

    def token(self, now: datetime, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Signed with the newest key; a claim of None is left out."""
        key = self.keys[0]
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        usual = {
            "iss": self.address,
            "aud": AUDIENCE,
            "sub": "42",
            "preferred_username": "ada",
            "iat": int(now.timestamp()),
            "exp": int(now.timestamp()) + 300,
            "roles": ["lcm-operator"],
        }
        given = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        token = jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, given, key)
        suite_canaries.know("token of the identity provider", token)
        return token


@asynccontextmanager
async def running_issuer() -> AsyncIterator[Issuer]:
    """On a loopback port."""
    issuer = Issuer()

    async def publish(request: web.Request) -> web.Response:
        issuer.calls.append(request.path)
        document = issuer.published(request.path)
        return web.json_response(document, status=404 if document is None or issuer.is_away else 200)

    app = web.Application()
    app.router.add_get("/{path:.*}", publish)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        issuer.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield issuer
    finally:
        await runner.cleanup()
