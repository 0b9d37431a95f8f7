"""Signing in at the OpenID Connect issuer: the authorization code flow with PKCE, bound to one browser.

Loaded only where it is configured: Authlib takes long to import.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from authlib.oauth2.client import OAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oidc.core import CodeIDToken

from lcm.control_plane.access.identity import Attempt
from lcm.control_plane.access.oidc import LEEWAY_SECONDS, MALFORMED, OidcVerifier, refusal
from lcm.control_plane.access.roles import AccessDenied, Principal, new_secret
from lcm.core.clock import Clock
from lcm.domain.errors import Unreachable

SCOPE: Final = "openid profile email"
_ERROR: Final = re.compile(r"[a-z_]{1,40}")

PostForm = Callable[[str, Mapping[str, str], str], Awaitable[tuple[int, bytes]]]
"""POSTs a form and returns status and body: bounded in size and time, no redirects. Raises Unreachable."""


@dataclass(frozen=True)
class OidcClient:
    """LCM as the issuer knows it."""

    id: str
    secret: str = field(default="", repr=False)
    """Empty for a public client."""


class OidcSignIn:
    """The issuer's page, and what it sends back."""

    def __init__(self, client: OidcClient, issuer: OidcVerifier, post_form: PostForm, clock: Clock) -> None:
        self.name = urlsplit(issuer.address).hostname or issuer.address
        self._client_id = client.id
        self._issuer = issuer
        self._post_form = post_form
        self._clock = clock
        self._oauth = OAuth2Client(
            None, client.id, client.secret or None, scope=SCOPE, code_challenge_method="S256"
        )

    async def begin(self, redirect_uri: str) -> tuple[str, Attempt]:
        """Return the address of the issuer's page, and what its answer is recognised by.

        Raises AccessDenied.
        """
        attempt = Attempt(new_secret(), new_secret(), new_secret())
        address, _ = self._oauth.create_authorization_url(
            await self._issuer.endpoint("authorization_endpoint"),
            state=attempt.state,
            code_verifier=attempt.verifier,
            redirect_uri=redirect_uri,
            nonce=attempt.nonce,
        )
        return str(address), attempt

    async def finish(
        self, attempt: Attempt | None, answer: Mapping[str, str], redirect_uri: str
    ) -> Principal:
        """Return the person of the issuer's answer to this attempt. Raises AccessDenied."""
        state = answer.get("state", "").encode()
        if attempt is None or not hmac.compare_digest(state, attempt.state.encode()):
            raise AccessDenied(
                401, "this sign-in was not begun in this browser, or too long ago; begin again"
            )
        if answer.get("iss", self._issuer.address) != self._issuer.address:
            raise AccessDenied(401, "the answer to this sign-in is of another identity provider")
        if "code" not in answer:
            error = _ERROR.fullmatch(answer.get("error", ""))
            raise AccessDenied(401, f"the identity provider refused: {error[0] if error else 'no code'}")
        tokens = await self._exchange(answer["code"], attempt, redirect_uri)
        return await self._person(tokens, attempt)

    async def _exchange(self, code: str, attempt: Attempt, redirect_uri: str) -> dict[str, Any]:
        body = prepare_token_request(
            "authorization_code", redirect_uri=redirect_uri, code=code, code_verifier=attempt.verifier
        )
        address = await self._issuer.endpoint("token_endpoint")
        given = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        auth = self._oauth.client_auth(self._oauth.token_endpoint_auth_method)
        address, headers, body = auth.prepare("POST", address, given, body)
        try:
            status, document = await self._post_form(address, headers, body)
        except Unreachable:
            raise AccessDenied(503, "the identity provider does not answer; try again later") from None
        try:
            tokens = msgspec.json.decode(document, type=dict[str, Any])
        except msgspec.MsgspecError:
            tokens = {}
        if status != 200 or not isinstance(tokens.get("id_token"), str):
            error = _ERROR.fullmatch(str(tokens.get("error", "")))
            raise AccessDenied(
                401, f"the identity provider refused the code: {error[0] if error else status}"
            )
        return tokens

    async def _person(self, tokens: Mapping[str, Any], attempt: Attempt) -> Principal:
        """Return the person of the ID token; the role may be in the access token, as with Keycloak."""
        token = await self._issuer.decode(tokens["id_token"])
        access_token = tokens.get("access_token")
        claims = CodeIDToken(
            token.claims,
            token.header,
            options={
                "iss": {"essential": True, "value": self._issuer.address},
                "aud": {"essential": True, "value": self._client_id},
                "nonce": {"essential": True, "value": attempt.nonce},
                "exp": {"essential": True},
                "sub": {"essential": True},
            },
            params={"nonce": attempt.nonce, "client_id": self._client_id, "access_token": access_token},
        )
        try:
            claims.validate(now=int(self._clock.now().timestamp()), leeway=LEEWAY_SECONDS)
        except MALFORMED as error:
            raise refusal(error) from None
        try:
            return self._issuer.principal_of(token.claims)
        except AccessDenied:
            if not isinstance(access_token, str) or not self._issuer.recognises(access_token):
                raise
        return await self._with_role_of(access_token, token.claims)

    async def _with_role_of(self, access_token: str, claims: Mapping[str, Any]) -> Principal:
        person = await self._issuer.verify(access_token)
        if person.id != self._issuer.id_of(claims):
            raise AccessDenied(401, "the tokens of this sign-in are of different people")
        ends = [at for at in (person.expires_at, self._issuer.end_of(claims)) if at is not None]
        return replace(person, expires_at=min(ends))
