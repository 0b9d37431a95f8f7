"""Access tokens of an identity provider: how it is asked for them, and how a context keeps getting new ones.

What is secret goes to the provider that LCM named at the sign-in and nowhere else, over TLS.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from lcm.client.calls import Answer
from lcm.client.contexts import Context, Renewal, address_of, locked, read_contexts, write_contexts
from lcm.client.errors import ContextError, SignInFailed, Unreachable
from lcm.client.sync_transport import Clock, Transport, is_due

TIMEOUT_SECONDS: Final = 30.0
USUAL_LIFE_SECONDS: Final = 60.0
"""Of an access token of which the provider does not say it; too short a life is only renewed too often."""
_ERROR: Final = re.compile(r"[a-z_]{1,40}")

Ask = Callable[[str, Mapping[str, str] | None], Answer]
"""Sends a form to an address of the provider, or reads it without one. Raises Unreachable."""


class Tokens(msgspec.Struct, frozen=True):
    """What the provider gives."""

    access_token: str
    refresh_token: str = ""
    expires_in: float = USUAL_LIFE_SECONDS

    def __repr__(self) -> str:
        return "Tokens(…)"


class _Problem(msgspec.Struct, frozen=True):
    error: str = ""


def over_http(address: str, form: Mapping[str, str] | None) -> Answer:
    """Ask the provider. Raises Unreachable, and ContextError if the connection would not be private."""
    parts = address_of(address)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ContextError(f"{address!r} of the identity provider must begin with https://")
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    transport = Transport(f"{parts.scheme}://{parts.netloc}", None, TIMEOUT_SECONDS)
    headers = {"Accept": "application/json"}
    try:
        if form is None:
            return transport.send("GET", target, headers, None)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return transport.send("POST", target, headers, urlencode(form).encode())
    finally:
        transport.close()


def error_of(answer: Answer) -> str:
    """Return the provider's code for what is wrong; nothing else of its text is shown."""
    try:
        found = _ERROR.fullmatch(msgspec.json.decode(answer.body, type=_Problem).error)
    except msgspec.MsgspecError:
        found = None
    return found[0] if found else f"status {answer.status}"


@contextmanager
def understood(host: str) -> Iterator[None]:
    """Raise SignInFailed for an answer that is not as the standard has it."""
    try:
        yield
    except msgspec.MsgspecError as error:
        raise SignInFailed(f"{host} gives an answer that is not understood: {error}") from None


def renewed(context: Context, path: Path, ask: Ask, clock: Clock) -> Context:
    """Return the context with a new access token, and keep it where the context is kept.

    One process at a time: many providers accept a refresh token once. The second one finds what the first
    one kept, and goes on from there. Raises SignInFailed if the provider gives no token any more, and
    Unreachable.
    """
    with locked(path):
        known = read_contexts(path)
        name = next((name for name, kept in known.contexts.items() if _is_same(kept, context)), None)
        if name is None:
            return _asked_again(context, ask, clock)
        kept = known.contexts[name]
        if kept != context and not is_due(kept, clock):
            return kept
        known.contexts[name] = new = _asked_again(kept, ask, clock)
        write_contexts(path, known)
        return new


def _is_same(kept: Context, context: Context) -> bool:
    return kept.renewal is not None and context.renewal is not None and kept.renewal.id == context.renewal.id


def _asked_again(context: Context, ask: Ask, clock: Clock) -> Context:
    renewal = context.renewal
    assert renewal is not None
    form = {
        "grant_type": "refresh_token",
        "client_id": renewal.client_id,
        "refresh_token": renewal.refresh_token,
    }
    answer = ask(renewal.token_endpoint, form)
    host = address_of(renewal.token_endpoint).hostname or ""
    if answer.status >= 500 or answer.status == 429:
        raise Unreachable(f"{host} answers {answer.status} instead of a new token", was_sent=True)
    if answer.status != 200:
        raise SignInFailed(
            f"your sign-in at {host} is over ({error_of(answer)}); log in again:"
            f" lcm login {context.url} --device"
        )
    with understood(host):
        tokens = msgspec.json.decode(answer.body, type=Tokens)
    return with_tokens(context, renewal, tokens, clock)


def with_tokens(context: Context, renewal: Renewal, tokens: Tokens, clock: Clock) -> Context:
    """Return the context with these tokens. Without a new refresh token the old one stays valid."""
    return msgspec.structs.replace(
        context,
        token=tokens.access_token,
        renewal=msgspec.structs.replace(
            renewal,
            refresh_token=tokens.refresh_token or renewal.refresh_token,
            expires_at=clock.now() + timedelta(seconds=tokens.expires_in),
        ),
    )
