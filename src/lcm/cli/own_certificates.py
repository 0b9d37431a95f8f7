"""Certificates of an authority of one's own, for processes that have none of an organization's.

The authority is made once and kept; certificates are signed again whenever they are asked for.
"""

import socket
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lcm.control_plane.access.roles import write_private
from lcm.core.tls import TlsFiles

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=397)
"""Browsers refuse certificates that are valid for longer than 398 days."""
CLOCKS_DIFFER_BY: Final = timedelta(hours=1)
OWN_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def certificate_of_this_host(directory: Path, hosts: Collection[str], now: datetime) -> TlsFiles:
    """Return a new certificate for this host and these addresses, of the authority in the directory."""
    return sign_certificate(directory, "lcm", (socket.gethostname(), *hosts), now)


def sign_certificate(
    directory: Path,
    file_name: str,
    hosts: Collection[str],
    now: datetime,
    authority_directory: Path | None = None,
) -> TlsFiles:
    """Sign a certificate for these names and addresses, and for loopback; the first name is its subject.

    Returns `<file_name>.pem`, `<file_name>-key.pem` and `ca.pem` in the directory; `<file_name>-both.pem` is
    for programs that want certificate and key in one file. Only the owner can read them.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority, authority_key = _authority(authority_directory or directory, now)
    key = ec.generate_private_key(ec.SECP256R1())
    names = list(dict.fromkeys((*hosts, *OWN_HOSTS)))
    certificate = (
        _builder(_named(names[0]), authority.subject, key.public_key(), now, LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    texts = {
        f"{file_name}-key.pem": _pem_of(key),
        f"{file_name}.pem": _text(certificate),
        f"{file_name}-both.pem": _text(certificate) + _pem_of(key),
        "ca.pem": _text(authority),
    }
    for name, text in texts.items():
        write_private(directory / name, text)
    return TlsFiles(directory / f"{file_name}.pem", directory / f"{file_name}-key.pem", directory / "ca.pem")


def _authority(directory: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority in the directory; make it at the first time, and before it ends too early."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    file, key_file = directory / "ca.pem", directory / "ca-key.pem"
    if file.exists() and key_file.exists():
        kept = x509.load_pem_x509_certificate(file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and kept.not_valid_after_utc > now + LIFETIME:
            return kept, key
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"LCM of {socket.gethostname()}"[:64])
    authority = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _pem_of(key))
    write_private(file, _text(authority))
    return authority, key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - CLOCKS_DIFFER_BY)
        .not_valid_after(now.astimezone(UTC) + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
