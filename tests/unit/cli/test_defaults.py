"""Which regions and templates LCM reads: flag, environment, ./config, /etc/lcm, built in."""

from pathlib import Path

import pytest

from lcm.cli.settings import DEFAULT, ENVIRONMENT, FLAG, load
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.defaults import BUILT_IN, PLACES, write_copies

TEMPLATES = "worker_templates.yaml"


def templates_and_source(**flags: str) -> tuple[Path, str]:
    loaded = load("control-plane", ControlPlaneSettings, None, flags)
    source = loaded.sources.get("worker_templates_config_path", DEFAULT)
    return loaded.settings.worker_templates_config_path, source


def test_the_first_that_says_something_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert templates_and_source() == (BUILT_IN / TEMPLATES, DEFAULT)
    list(write_copies(Path("config")))
    assert templates_and_source() == (Path("config") / TEMPLATES, DEFAULT)
    monkeypatch.setenv("WORKER_TEMPLATES_CONFIG_PATH", "/of/environment.yaml")
    assert templates_and_source() == (Path("/of/environment.yaml"), ENVIRONMENT)
    flags = {"WORKER_TEMPLATES_CONFIG_PATH": "/of/flag.yaml"}
    assert templates_and_source(**flags) == (Path("/of/flag.yaml"), FLAG)


def test_the_directory_comes_before_the_host_and_the_host_before_the_package() -> None:
    assert (Path("config"), Path("/etc/lcm"), BUILT_IN) == PLACES


def test_init_keeps_a_file_that_somebody_has_edited(tmp_path: Path) -> None:
    edited = tmp_path / TEMPLATES
    edited.write_text("mine")
    assert dict(write_copies(tmp_path)) == {tmp_path / "regions.yaml": True, edited: False}
    assert edited.read_text() == "mine"
    assert (tmp_path / "regions.yaml").read_text() == (BUILT_IN / "regions.yaml").read_text()
