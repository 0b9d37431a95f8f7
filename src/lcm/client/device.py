"""Signing in at an identity provider from a terminal: OAuth's device authorization grant (RFC 8628).

LCM names the provider and its client there; the rest is between this program and the provider. A person
opens the provider's page in any browser and enters a code; this program asks for the tokens until they come.
"""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from lcm.client.calls import Answer
from lcm.client.contexts import Context, Renewal
from lcm.client.errors import SignInFailed, Unreachable
from lcm.client.oauth import Ask, Tokens, error_of, understood, with_tokens
from lcm.client.sync_transport import Clock
from lcm.core.ids import RandomIds
from lcm.rest.schemas import DeviceClient

GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
SLOW_DOWN_SECONDS: Final = 5.0
"""By which the standard has a provider lengthen the interval."""
MAX_INTERVAL_SECONDS: Final = 60.0
MAX_PATIENCE_SECONDS: Final = 3600.0
_IDS: Final = RandomIds()
_OVER: Final = {
    "access_denied": "the request was denied there; if that was not you, another person has entered the code",
    "expired_token": "the code was not entered in time; log in again for a new one",
}


class Endpoints(msgspec.Struct, frozen=True):
    """What the provider publishes about itself, as far as it matters here."""

    issuer: str
    token_endpoint: str
    device_authorization_endpoint: str | None = None


class DeviceCode(msgspec.Struct, frozen=True):
    """What the person needs, and what the tokens are asked for with."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = 5.0

    def __repr__(self) -> str:
        return f"DeviceCode({self.user_code!r}, {self.verification_uri!r}, …)"


class DeviceSignIn:
    """One sign-in of a person. Its methods raise SignInFailed and Unreachable."""

    def __init__(self, client: DeviceClient, ask: Ask, clock: Clock) -> None:
        self._client = client
        self._ask = ask
        self._clock = clock
        self._host = urlsplit(client.issuer).hostname or client.issuer
        self._token_endpoint = ""

    def begin(self) -> DeviceCode:
        """Return the code that the person enters, and where."""
        endpoints = self._discovered()
        if endpoints.device_authorization_endpoint is None:
            raise SignInFailed(
                f"{self._host} offers no sign-in from a terminal (device authorization grant); use a token"
            )
        self._token_endpoint = endpoints.token_endpoint
        form = {"client_id": self._client.client_id, "scope": self._client.scope}
        answer = self._ask(endpoints.device_authorization_endpoint, form)
        if answer.status != 200:
            raise SignInFailed(
                f"{self._host} refuses the client {self._client.client_id!r} ({error_of(answer)}): an admin"
                " registers it there as a public client with the device authorization grant"
            )
        with understood(self._host):
            return msgspec.json.decode(answer.body, type=DeviceCode)

    def finish(self, code: DeviceCode) -> Tokens:
        """Return the tokens once the person has entered the code."""
        form = {
            "grant_type": GRANT,
            "client_id": self._client.client_id,
            "device_code": code.device_code,
        }
        interval = min(max(code.interval, 1.0), MAX_INTERVAL_SECONDS)
        deadline = self._clock.monotonic() + min(code.expires_in, MAX_PATIENCE_SECONDS)
        while self._clock.monotonic() + interval <= deadline:
            self._clock.sleep(interval)
            try:
                answer = self._ask(self._token_endpoint, form)
            except Unreachable:
                interval = min(2 * interval, MAX_INTERVAL_SECONDS)
                continue
            if answer.status == 200:
                with understood(self._host):
                    return msgspec.json.decode(answer.body, type=Tokens)
            interval = min(interval + self._longer_by(answer), MAX_INTERVAL_SECONDS)
        raise SignInFailed(_OVER["expired_token"])

    def _longer_by(self, answer: Answer) -> float:
        """Return by how much longer to wait between two questions, if there is any use in another."""
        error = error_of(answer)
        if error == "authorization_pending":
            return 0.0
        if error == "slow_down" or answer.status >= 500 or answer.status == 429:
            return SLOW_DOWN_SECONDS
        raise SignInFailed(_OVER.get(error, f"{self._host} gives no token: {error}"))

    def _discovered(self) -> Endpoints:
        address = f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
        answer = self._ask(address, None)
        if answer.status != 200:
            raise SignInFailed(f"{address} answers {answer.status}; is OIDC_ISSUER of LCM right?")
        with understood(self._host):
            found = msgspec.json.decode(answer.body, type=Endpoints)
        if found.issuer != self._client.issuer:
            raise SignInFailed(f"{address} is of another issuer, {found.issuer!r}")
        return found

    def context(self, url: str, ca_file: str | None, tokens: Tokens) -> Context:
        """Return how LCM at this address is reached with these tokens."""
        found = Context(url=url, token=tokens.access_token, ca_file=ca_file)
        if not tokens.refresh_token:
            return found
        renewal = Renewal(
            id=_IDS.new_id(),
            token_endpoint=self._token_endpoint,
            client_id=self._client.client_id,
            refresh_token=tokens.refresh_token,
            expires_at=self._clock.now(),
        )
        return with_tokens(found, renewal, tokens, self._clock)
