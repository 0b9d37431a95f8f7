"""Secrets that are recognised wherever they turn up, and the search for them."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus


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
