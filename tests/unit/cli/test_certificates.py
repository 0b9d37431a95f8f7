"""`lcm certificates`: an authority and certificates for hosts that have none of an organization's."""

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcm.cli.app import app
from lcm.core.tls import TlsFiles
from support.certificates import serial_seen


def made(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["certificates", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def files_in(directory: Path, name: str) -> TlsFiles:
    return TlsFiles(directory / f"{name}.pem", directory / f"{name}-key.pem", directory / "ca.pem")


def test_hosts_with_certificates_of_one_authority_trust_each_other_by_every_name(tmp_path: Path) -> None:
    assert "cp1.pem is for cp1, lcm.example" in made(str(tmp_path), "cp1,lcm.example", "cp2")
    server = files_in(tmp_path, "cp1").server_context()
    client = files_in(tmp_path, "cp2").client_context()
    assert server is not None
    assert client is not None
    for name in ("cp1", "lcm.example", "localhost"):
        serial_seen(server, client.get(), name)


def test_the_key_of_the_authority_is_kept_apart_where_that_is_asked(tmp_path: Path) -> None:
    authority, directory = tmp_path / "authority", tmp_path / "certificates"
    made(f"--authority={authority}", "--mode=644", str(directory), "cp1")
    assert sorted(file.name for file in authority.iterdir()) == ["ca-key.pem", "ca.pem"]
    assert "ca-key.pem" not in {file.name for file in directory.iterdir()}
    assert stat.S_IMODE((authority / "ca-key.pem").stat().st_mode) == 0o600
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o644}
    both = (directory / "cp1-both.pem").read_text()
    assert both == (directory / "cp1.pem").read_text() + (directory / "cp1-key.pem").read_text()


def test_a_certificate_that_is_made_again_is_of_the_same_authority(tmp_path: Path) -> None:
    made(str(tmp_path), "cp1")
    authority, certificate = (tmp_path / "ca.pem").read_text(), (tmp_path / "cp1.pem").read_text()
    made(str(tmp_path), "cp1")
    assert (tmp_path / "ca.pem").read_text() == authority
    assert (tmp_path / "cp1.pem").read_text() != certificate


def test_permissions_are_those_of_this_certificate_alone(tmp_path: Path) -> None:
    made(str(tmp_path), "c1", "c10")
    made("--mode=644", str(tmp_path), "c")
    made("--mode=640", str(tmp_path), "c1")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes["ca-key.pem"] == modes["c10-key.pem"] == 0o600
    assert (modes["c-key.pem"], modes["c1-both.pem"]) == (0o644, 0o640)


@pytest.mark.parametrize("name", ["ca", "../cp1", "a/b", "", "-cp1", "*.example"])
def test_a_name_that_is_no_host_or_that_of_the_authority_writes_nothing(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["certificates", str(tmp_path / "tls"), "--", name])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["", "rw", "999", "0600"])
def test_permissions_that_are_none_are_refused(mode: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["certificates", f"--mode={mode}", str(tmp_path), "cp1"])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
