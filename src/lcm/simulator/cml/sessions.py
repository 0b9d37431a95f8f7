"""The tokens that a CML server issues: JWT, HS256, valid for a day or until logout."""

import base64
import hashlib
import hmac
from typing import Any, Final, NamedTuple

import msgspec

LIFETIME_SECONDS: Final = 86_400
MAX_SESSIONS: Final = 10_000

_HEADER: Final = {"alg": "HS256", "typ": "JWT"}


class _Session(NamedTuple):
    user_id: str
    expires_at: int


class Sessions:
    """Issues and verifies tokens; one server's tokens are invalid on another."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._by_token: dict[str, _Session] = {}
        self._count = 0
        self.lifetime_seconds = LIFETIME_SECONDS
        """Of the tokens issued from now on."""
        self.gives_expired_tokens = False
        """A fault: every token has expired from the first moment."""

    def open(self, user_id: str, now: float) -> str:
        """Issue a token for a user."""
        issued_at = int(now) - (self.lifetime_seconds if self.gives_expired_tokens else 0)
        expires_at = issued_at + self.lifetime_seconds
        self._count += 1
        claims = {
            "iss": "com.cisco.virl",
            "iat": issued_at,
            "exp": expires_at,
            "sub": user_id,
            "jti": f"{self._count:08x}",
        }
        signed = f"{_encode(_HEADER)}.{_encode(claims)}"
        token = f"{signed}.{self._sign(signed)}"
        self._make_room(now)
        self._by_token[token] = _Session(user_id, expires_at)
        return token

    def user_of(self, token: str, now: float) -> str | None:
        """The user of a token; None unless this server issued it and it is still valid."""
        session = self._by_token.get(token)
        return session.user_id if session is not None and now < session.expires_at else None

    def close(self, token: str) -> None:
        self._by_token.pop(token, None)

    def close_all(self, user_id: str | None = None) -> None:
        """Revoke the tokens of one user, or of all users."""
        self._by_token = {
            token: session
            for token, session in self._by_token.items()
            if user_id is not None and session.user_id != user_id
        }

    def _make_room(self, now: float) -> None:
        if len(self._by_token) >= MAX_SESSIONS:
            self._by_token = {
                token: session for token, session in self._by_token.items() if now < session.expires_at
            }
            while len(self._by_token) >= MAX_SESSIONS:
                del self._by_token[next(iter(self._by_token))]

    def _sign(self, signed: str) -> str:
        return _unpadded(hmac.digest(self._secret, signed.encode(), hashlib.sha256))


def _encode(part: dict[str, Any]) -> str:
    return _unpadded(msgspec.json.encode(part))


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
