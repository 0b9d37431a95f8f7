"""The last line of defence for secrets: what is known to be one is blanked out of every line written.

Nothing should ever log a secret. But a library's exception may quote a header or an address, and a
traceback shows whatever it likes; so the text itself is searched, after everything else is done.
"""

import base64
import json
import re
from typing import TextIO
from urllib.parse import quote, quote_plus

MASK = "[secret]"
MIN_LENGTH = 6
"""Shorter ones would blank out half of every line, and are no secrets."""

MAX_SECRETS = 10_000

_BY_SHAPE = r"lcm_[A-Za-z0-9_-]{40,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
"""LCM's own tokens and all JWTs are recognised by their form."""


class Redactor:
    """Knows secrets in every form in which they travel."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = re.compile(_BY_SHAPE)

    def protect(self, secret: str) -> None:
        """From now on this never appears in a log. The oldest are forgotten beyond the bound."""
        if len(secret) < MIN_LENGTH or secret in self._known:
            return
        self._known[secret] = None
        if len(self._known) > MAX_SECRETS:
            del self._known[next(iter(self._known))]
        self._pattern = None

    def clean(self, text: str) -> str:
        if self._pattern is None:
            forms = {form for secret in self._known for form in forms_of(secret)}
            longest_first = sorted(forms, key=len, reverse=True)
            self._pattern = re.compile("|".join([*map(re.escape, longest_first), _BY_SHAPE]))
        return self._pattern.sub(MASK, text)


def forms_of(secret: str) -> set[str]:
    """As it is, and as base64, addresses and JSON would show it."""
    raw = secret.encode()
    return {
        secret,
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
    }


class RedactingStream:
    """Writes to another stream what may be seen."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor

    def write(self, text: str) -> int:
        return self._stream.write(self._redactor.clean(text))

    def flush(self) -> None:
        self._stream.flush()


redactor = Redactor()
"""Logs are the process's own, and so is this."""
