"""The self-signed certificate of one CML server."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed_context(common_name: str, directory: Path | None) -> ssl.SSLContext:
    """A TLS server context with a new key and certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show_new_certificate(context, common_name, directory)
    return context


def show_new_certificate(context: ssl.SSLContext, common_name: str, directory: Path | None) -> None:
    """New connections see another certificate; the files of its key exist only while they are loaded."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(common_name, key)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, suffix=".pem") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)


def _certificate(common_name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    today = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
