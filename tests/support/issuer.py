"""A small OpenID Connect issuer: publishes its keys, signs whatever claims a test wants, signs people in.

At its page everyone is signed in at once. It is strict about the rest: codes are for one use, one client, one
redirect URI and the browser that has the verifier of the challenge.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from lcm.core.clock import SystemClock
from lcm.domain.errors import Unreachable
from support.canaries import suite_canaries
from support.virtual_time import BEGINNING

AUDIENCE = "lcm"
CLIENT: Final = "lcm-dashboard"


class Issuer:
    """Keys and tokens; `documents` is what it publishes, `calls` counts the requests."""

    def __init__(self, address: str = "https://issuer.example") -> None:
        self.address = address
        self.keys: list[RSAKey | ECKey] = [RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})]
        self.is_away = False
        self.calls: list[str] = []
        self.extra: dict[str, Any] = {}
        self.client_secret = ""
        self.id_claims: dict[str, Any] = {}
        """Claims of the next ID tokens, besides or instead of the usual ones; None leaves one out."""
        self.access_claims: dict[str, Any] = {}
        self._asked: dict[str, dict[str, str]] = {}

    def add_key(self, kid: str) -> None:
        self.keys.insert(0, ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}))

    def published(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.address,
                "jwks_uri": f"{self.address}/keys",
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                **self.extra,
            }
        if path == "/keys":
            return dict(KeySet(list(self.keys)).as_dict(private=False))
        return None

    async def fetch(self, address: str) -> bytes:
        self.calls.append(address)
        document = self.published(address.removeprefix(self.address))
        if self.is_away or document is None:
            raise Unreachable(f"{address}: connection refused")
        return json.dumps(document).encode()

    def sign_in(self, address: str) -> str:
        """The person signs in at the page at this address; return where the browser is led then."""
        asked = dict(parse_qsl(urlsplit(address).query))
        assert address.startswith(f"{self.address}/authorize?")
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._asked[code] = asked
        answer = {"code": code, "state": asked["state"], "iss": self.address}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    async def post(self, address: str, headers: Mapping[str, str], form: str) -> tuple[int, bytes]:
        self.calls.append(address)
        if self.is_away:
            raise Unreachable(f"{address}: connection refused")
        status, answer = self.exchange(headers, form, BEGINNING)
        return status, json.dumps(answer).encode()

    def exchange(self, headers: Mapping[str, str], form: str, now: datetime) -> tuple[int, dict[str, Any]]:
        """Return the tokens for a code, or why there are none."""
        given = dict(parse_qsl(form))
        if self.client_secret:
            secret = base64.b64encode(f"{CLIENT}:{self.client_secret}".encode()).decode()
            if headers.get("Authorization") != f"Basic {secret}":
                return 401, {"error": "invalid_client"}
        elif given.get("client_id") != CLIENT:
            return 401, {"error": "invalid_client"}
        asked = self._asked.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or given["grant_type"] != "authorization_code"
            or given.get("redirect_uri") != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return 400, {"error": "invalid_grant"}
        access_token = self.token(now, **self.access_claims)
        half = hashlib.sha256(access_token.encode()).digest()[:16]
        usual = {
            "aud": CLIENT,
            "nonce": asked["nonce"],
            "at_hash": base64.urlsafe_b64encode(half).rstrip(b"=").decode(),
        }
        id_token = self.token(now, **{**usual, **self.id_claims})
        return 200, {"access_token": access_token, "id_token": id_token, "token_type": "Bearer"}

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

    async def authorize(request: web.Request) -> web.Response:
        address = f"{issuer.address}{request.path_qs}"
        return web.Response(status=302, headers={"Location": issuer.sign_in(address)})

    async def exchange(request: web.Request) -> web.Response:
        status, answer = issuer.exchange(request.headers, await request.text(), SystemClock().now())
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_get("/authorize", authorize)
    app.router.add_post("/token", exchange)
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
