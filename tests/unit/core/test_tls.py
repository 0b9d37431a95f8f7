"""Contexts of certificate files: renewed under a running server, and never worse than before."""

import shutil
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.typing import EventDict

from lcm.core.configuration import ConfigurationError
from lcm.core.tls import TlsFiles, is_loopback
from support.certificates import serial_seen, signed, trusting


def served(files: TlsFiles) -> ssl.SSLContext:
    context = files.server_context()
    assert context is not None
    return context


def test_a_handshake_shows_the_certificate_that_is_in_the_file_by_then(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    server, client = served(files), trusting(files)
    before = serial_seen(server, client)
    assert serial_seen(server, client) == before
    signed(tmp_path, "plane")
    after = serial_seen(server, client)
    assert after != before
    assert serial_seen(server, client) == after


def test_a_certificate_whose_key_is_not_there_yet_does_not_replace_the_one_in_use(
    tmp_path: Path, logs: list[EventDict]
) -> None:
    files, renewed = signed(tmp_path, "plane"), signed(tmp_path, "renewed")
    server, client = served(files), trusting(files)
    before = serial_seen(server, client)
    assert files.certificate is not None
    assert files.key is not None
    assert renewed.certificate is not None
    assert renewed.key is not None
    shutil.copy(renewed.certificate, files.certificate)
    assert serial_seen(server, client) == before
    assert serial_seen(server, client) == before
    assert [log["event"] for log in logs] == ["certificate not reloaded"], "once for each change"
    shutil.copy(renewed.key, files.key)
    assert serial_seen(server, client) != before


def test_a_certificate_that_is_deleted_stays_in_use(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    server, client = served(files), trusting(files)
    before = serial_seen(server, client)
    assert files.certificate is not None
    files.certificate.unlink()
    assert serial_seen(server, client) == before


def test_a_client_follows_a_new_authority_and_refuses_the_former_one(tmp_path: Path) -> None:
    former, newer = signed(tmp_path / "former", "plane"), signed(tmp_path / "newer", "plane")
    authority = tmp_path / "ca.pem"
    assert former.authority is not None
    assert newer.authority is not None
    shutil.copy(former.authority, authority)
    client = TlsFiles(authority=authority).client_context()
    assert client is not None
    serial_seen(served(former), client.get())
    with pytest.raises(ssl.SSLCertVerificationError):
        serial_seen(served(newer), client.get())
    shutil.copy(newer.authority, tmp_path / "ca.new")
    (tmp_path / "ca.new").replace(authority)
    serial_seen(served(newer), client.get())
    with pytest.raises(ssl.SSLCertVerificationError):
        serial_seen(served(former), client.get())


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane", ["lcm.example"])
    serial_seen(served(files), trusting(files), "lcm.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        serial_seen(served(files), trusting(files), "other.example")


def test_a_client_without_a_certificate_passes_the_handshake_and_one_of_another_authority_does_not(
    tmp_path: Path,
) -> None:
    plane, stranger = signed(tmp_path / "ours", "plane"), signed(tmp_path / "theirs", "stranger")
    server = served(TlsFiles(plane.certificate, plane.key, None, plane.authority))
    serial_seen(server, trusting(plane))
    client = TlsFiles(stranger.certificate, stranger.key, plane.authority).client_context()
    assert client is not None
    with pytest.raises(ssl.SSLError):
        serial_seen(server, client.get())


def test_a_key_of_another_certificate_is_refused_at_start(tmp_path: Path) -> None:
    ours, other = signed(tmp_path, "ours"), signed(tmp_path, "other")
    with pytest.raises(ConfigurationError, match=r"ours\.pem with key .*other-key\.pem: key values mismatch"):
        TlsFiles(ours.certificate, other.key).server_context()


def test_a_file_that_is_not_there_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.pem.*no such file"):
        TlsFiles(tmp_path / "absent.pem", tmp_path / "absent-key.pem").server_context()
    with pytest.raises(ConfigurationError, match=r"authority .*absent\.pem: no such file"):
        TlsFiles(authority=tmp_path / "absent.pem").client_context()


def test_a_key_with_a_passphrase_is_refused_instead_of_asked_for_at_a_terminal(tmp_path: Path) -> None:
    files = signed(tmp_path, "plane")
    assert files.key is not None
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    with pytest.raises(ConfigurationError, match=r"plane-key\.pem"):
        files.server_context()


def test_keys_can_be_read_by_their_owner_only_and_the_authority_is_kept(tmp_path: Path) -> None:
    first = signed(tmp_path / "tls", "lcm")
    assert first.authority is not None
    authority = first.authority.read_bytes()
    signed(tmp_path / "tls", "lcm")
    assert first.authority.read_bytes() == authority, "what trusts it would have to be told"
    for key in (tmp_path / "tls").glob("*-key.pem"):
        assert key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("lcm.example", False),
    ],
)
def test_only_addresses_of_this_host_are_loopback(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own
