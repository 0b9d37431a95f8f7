"""An authority for tests, which signs whatever certificate is asked for."""

import ssl
from collections.abc import Collection
from pathlib import Path

from lcm.cli.own_certificates import sign_certificate
from lcm.core.clock import SystemClock
from lcm.core.tls import TlsFiles


def signed(directory: Path, name: str, hosts: Collection[str] = ("test.example",)) -> TlsFiles:
    """A certificate for these hosts and loopback; the same name again is a renewal."""
    return sign_certificate(directory, name, hosts, SystemClock().now())


def with_authority(files: TlsFiles, *, clients: bool = False) -> TlsFiles:
    """The same, and clients are asked for certificates of the same authority."""
    authority = files.authority if clients else None
    return TlsFiles(files.certificate, files.key, files.authority, authority)


def trusting(files: TlsFiles) -> ssl.SSLContext:
    """A client that trusts the authority and has no certificate."""
    return ssl.create_default_context(cafile=files.authority)


def serial_seen(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> str:
    """The serial number of the certificate that a handshake shows. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(8):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting, "the handshake did not end"
    certificate = ends[0].getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])
