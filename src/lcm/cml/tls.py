"""How CML servers are authenticated: by a pinned certificate, by one that a CA signed, or not at all."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

HOST_NAME_MISMATCH: Final = 62
"""OpenSSL's number for it."""


class CmlTrust(StrEnum):
    """How a server is authenticated (CML_WORKER_API_VERIFY_SSL)."""

    PIN = "false"
    """By the certificate it presented at first contact."""
    CA = "true"
    """By a certificate for its address, or for one of the host names, that a CA signed."""
    NONE = "off"
    """Not at all: only for a network in which no other server can answer."""


@dataclass(frozen=True)
class CmlTls:
    """What is required of a server's certificate."""

    trust: CmlTrust = CmlTrust.PIN
    ca_file: Path | None = None
    """The CAs; None: those of the operating system."""
    host_names: tuple[str, ...] = ()
    """Patterns, one of which a name in the certificate must match; empty: the address must be in it."""

    @property
    def is_pinned(self) -> bool:
        return self.trust is CmlTrust.PIN

    def context(self) -> ssl.SSLContext:
        """One for all servers: a context each would cost a megabyte."""
        if self.trust is not CmlTrust.CA:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        context = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cafile=self.ca_file)
        if self.host_names:
            context.check_hostname = False
            context.host_names = self.host_names
            context.sslobject_class = _NamedConnection
        return context


class NamedContext(ssl.SSLContext):
    """Connects only to servers whose certificate has a name that matches a pattern, if there are patterns."""

    host_names: tuple[str, ...] = ()

    def require_name(self, certificate: Mapping[str, Any] | None) -> None:
        """Raises SSLCertVerificationError."""
        alternatives = (certificate or {}).get("subjectAltName", ())
        names = [name.lower() for kind, name in alternatives if kind == "DNS"]
        if self.host_names and not any(
            fnmatchcase(name, pattern) for name in names for pattern in self.host_names
        ):
            text = f"it is for {', '.join(names) or 'no host name'}, not for {' or '.join(self.host_names)}"
            error = ssl.SSLCertVerificationError(1, text)
            error.verify_code, error.verify_message = HOST_NAME_MISMATCH, text
            raise error


class _NamedConnection(ssl.SSLObject):
    """Its handshake fails unless the name is right: nothing is sent then."""

    def do_handshake(self) -> None:
        super().do_handshake()
        assert isinstance(self.context, NamedContext), "made by CmlTls.context"
        self.context.require_name(self.getpeercert())
