"""A small OpenID Connect issuer: publishes its keys, signs whatever claims a test wants, signs people in.

At its page everyone is signed in at once. It is strict about the rest: codes are for one use, one client, one
redirect URI and the browser that has the verifier of the challenge. Codes of devices end, whoever asks for
their tokens too often is told to slow down, and a refresh token is accepted once.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
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
DEVICE_CLIENT: Final = "lcm-terminal"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_CODE_LIFE: Final = timedelta(minutes=10)


@dataclass
class AskedForDevice:
    """What a program without a browser waits for."""

    user_code: str
    ends_at: datetime
    interval: timedelta
    asked_at: datetime
    """When its tokens were asked for last."""
    questions: int = 0


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
        self.device_interval_seconds = 5.0
        self.gives_refresh_tokens = True
        self.access_seconds = 300
        """How long access tokens are valid."""
        self.questions_before_the_person = 2
        """How often the tokens of a device are asked for in vain."""
        self.is_denied = False
        """Whether the person denies what a device asks for."""
        self._devices: dict[str, AskedForDevice] = {}
        self._refresh_tokens: set[str] = set()

    def add_key(self, kid: str) -> None:
        self.keys.insert(0, ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}))

    def published(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.address,
                "jwks_uri": f"{self.address}/keys",
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                "device_authorization_endpoint": f"{self.address}/device-code",
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
        if given.get("grant_type") in (DEVICE_GRANT, "refresh_token"):
            return self._for_a_device(given, now)
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

    def device_code(self, form: str, now: datetime) -> tuple[int, dict[str, Any]]:
        """Return what a program without a browser shows to the person."""
        given = dict(parse_qsl(form))
        if given.get("client_id") != DEVICE_CLIENT:
            return 401, {"error": "invalid_client"}
        assert "openid" in given["scope"].split()
        code, user_code = self._secret("device code of the identity provider"), secrets.token_hex(4).upper()
        interval = timedelta(seconds=self.device_interval_seconds)
        self._devices[code] = AskedForDevice(user_code, now + DEVICE_CODE_LIFE, interval, now)
        page = f"{self.address}/device"
        return 200, {
            "device_code": code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
            "expires_in": DEVICE_CODE_LIFE.total_seconds(),
            "interval": self.device_interval_seconds,
        }

    def _for_a_device(self, given: Mapping[str, str], now: datetime) -> tuple[int, dict[str, Any]]:
        if given.get("client_id") != DEVICE_CLIENT:
            return 401, {"error": "invalid_client"}
        error = self._refresh(given) if "refresh_token" in given else self._device(given["device_code"], now)
        if error:
            return 400, {"error": error}
        ends = int(now.timestamp()) + self.access_seconds
        tokens: dict[str, Any] = {
            "access_token": self.token(now, exp=ends, jti=secrets.token_hex(4), **self.access_claims),
            "token_type": "Bearer",
            "expires_in": self.access_seconds,
        }
        if self.gives_refresh_tokens:
            tokens["refresh_token"] = self._secret("refresh token of the identity provider")
            self._refresh_tokens.add(tokens["refresh_token"])
        return 200, tokens

    def _device(self, code: str, now: datetime) -> str:
        """Return why there are no tokens for the code yet, or any more."""
        asked = self._devices.get(code)
        if asked is None:
            return "invalid_grant"
        since, asked.asked_at = now - asked.asked_at, now
        if now >= asked.ends_at:
            return "expired_token"
        if since < asked.interval:
            asked.interval += timedelta(seconds=5)
            return "slow_down"
        asked.questions += 1
        if asked.questions <= self.questions_before_the_person:
            return "authorization_pending"
        del self._devices[code]
        return "access_denied" if self.is_denied else ""

    def _refresh(self, given: Mapping[str, str]) -> str:
        if given["refresh_token"] not in self._refresh_tokens:
            return "invalid_grant"
        self._refresh_tokens.remove(given["refresh_token"])
        return ""

    def end_all_sign_ins(self) -> None:
        self._refresh_tokens.clear()

    def _secret(self, name: str) -> str:
        made = secrets.token_urlsafe(16)
        suite_canaries.know(name, made)
        return made

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

    async def device_code(request: web.Request) -> web.Response:
        status, answer = issuer.device_code(await request.text(), SystemClock().now())
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_get("/authorize", authorize)
    app.router.add_post("/token", exchange)
    app.router.add_post("/device-code", device_code)
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
