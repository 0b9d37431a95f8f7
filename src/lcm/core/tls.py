"""TLS between processes: certificates are files, which are read again as soon as they change.

Certificates are renewed every few weeks, by some every few hours; a restart for each would be an outage. So
every handshake asks for the newest context. Files that cannot be used, such as a certificate whose key is not
written yet, change nothing: the last good ones stay in use.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from lcm.core.configuration import ConfigurationError

log = structlog.get_logger(__name__)

C = TypeVar("C", bound=ssl.SSLContext)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a process. Its certificate is served, and shown to a server that asks for one."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    """Checks the certificates of servers; None: the system's authorities."""
    client_authority: Path | None = None
    """Checks the certificates of clients; None: clients are not asked for one."""

    def server_context(self) -> "ServerContext | None":
        """Return a context that serves the newest certificate; None without one.

        Raises ConfigurationError if the files cannot be used.
        """
        if self.certificate is None:
            return None
        newest = NewestContext(self._present(self.client_authority), partial(_server_context, self))

        def use_newest(handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            handshake.context = newest.get()

        context = _server_context(self)
        context.sni_callback = use_newest  # called in every handshake, with a name or without
        context.in_use = newest
        return context

    def client_context(self) -> "ClientContext | None":
        """Return the contexts for calls to other processes; None if the system's authorities suffice.

        Raises ConfigurationError if the files cannot be used.
        """
        if self.authority is None and self.certificate is None:
            return None
        return NewestContext(self._present(self.authority), partial(_client_context, self))

    def _present(self, authority: Path | None) -> tuple[Path, ...]:
        return tuple(file for file in (self.certificate, self.key, authority) if file is not None)


class ServerContext(ssl.SSLContext):
    """Serves one certificate; the one that a server listens with hands each handshake over to the newest."""

    expires_at: datetime
    in_use: "NewestContext[ServerContext]"


class NewestContext(Generic[C]):
    """A context made of files, and made again when they have changed."""

    def __init__(self, files: tuple[Path, ...], make: Callable[[], C]) -> None:
        self._files = files
        self._make = make
        self._stamps = self._read_stamps()
        self._context = make()

    def get(self) -> C:
        """Return the context of the files as they are now, or of the last ones that could be used."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return self._context
        self._stamps = stamps
        try:
            self._context = self._make()
        except ConfigurationError as error:
            log.warning("certificate not reloaded", error=str(error))
        else:
            log.info("certificate reloaded", files=[str(file) for file in self._files])
        return self._context

    def _read_stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp_of, self._files))


ClientContext = NewestContext[ssl.SSLContext]


def trust_of(tls: ClientContext | None) -> ssl.SSLContext | bool:
    """Return what aiohttp takes as `ssl`; True is the system's authorities.

    A request with another context gets another connection.
    """
    return tls.get() if tls is not None else True


def is_loopback(host: str) -> bool:
    """Return whether only processes of this host can connect to the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _stamp_of(file: Path) -> tuple[int, int, int] | None:
    """What differs once the file is replaced, written or made readable; None if it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_ino, found.st_size


def _server_context(files: TlsFiles) -> ServerContext:
    from cryptography.x509 import (
        load_pem_x509_certificate,
    )  # slow to load, and of no use without a certificate

    assert files.certificate is not None
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, files)
    try:
        context.expires_at = load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:  # replaced just now, or of no form that cryptography reads
        raise ConfigurationError(f"certificate {files.certificate}: {error}") from None
    if files.client_authority is not None:
        _load_authority(context, files.client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL  # people have none; which paths need one the application says
    return context


def _client_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if files.authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, files.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate is not None:
        _load_certificate(context, files)
    return context


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.certificate is not None
    try:
        context.load_cert_chain(files.certificate, files.key, password="")  # never ask a terminal
    except OSError as error:
        raise ConfigurationError(
            f"certificate {files.certificate} with key {files.key}: {_reason(error)}"
        ) from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(cafile=authority)
    except OSError as error:
        raise ConfigurationError(f"authority {authority}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    """What people can mend; OpenSSL has constants for reasons, and none for a file that is no PEM."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").replace("_", " ").lower()
    return (error.strerror or str(error)).lower()
