"""The tokens a CML server gives out: JWT, HS256, good for a day."""

import base64
import hashlib
import hmac
from typing import Any, Final

import msgspec

ADMIN_ID: Final = "00000000-0000-4000-a000-000000000000"
LIFETIME_SECONDS: Final = 86_400

_HEADER: Final = {"alg": "HS256", "typ": "JWT"}


class Sessions:
    """Gives out tokens and knows its own again; one server's tokens mean nothing to another."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def open(self, now: float) -> str:
        """A token for the administrator."""
        issued_at = int(now)
        claims = {
            "iss": "com.cisco.virl",
            "iat": issued_at,
            "exp": issued_at + LIFETIME_SECONDS,
            "sub": ADMIN_ID,
        }
        signed = f"{_encode(_HEADER)}.{_encode(claims)}"
        return f"{signed}.{self._sign(signed)}"

    def is_valid(self, token: str, now: float) -> bool:
        """Whether this server gave it out and it has not expired."""
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(signed).encode()):
            return False
        claims = msgspec.json.decode(_unpadded_decode(signed.partition(".")[2]))
        return bool(now < claims["exp"])

    def _sign(self, signed: str) -> str:
        return _unpadded(hmac.digest(self._secret, signed.encode(), hashlib.sha256))


def _encode(part: dict[str, Any]) -> str:
    return _unpadded(msgspec.json.encode(part))


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpadded_decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
