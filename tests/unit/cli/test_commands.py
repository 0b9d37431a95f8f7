"""What the commands say to people: plainly, whatever they were told."""

import pytest
from typer.testing import CliRunner

from lcm.cli.app import app


def complaints(*arguments: str) -> str:
    """Of a command that ends with an error of its own, not with a stack trace."""
    ended = CliRunner().invoke(app, arguments)
    assert (ended.exit_code, type(ended.exception)) == (1, SystemExit), ended.exception
    return ended.stderr


def test_up_tells_what_is_wrong_in_the_environment_and_repeats_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEADER_LEASE_TTL", "2")
    monkeypatch.setenv("CML_DEFAULT_PASSWORD", "open sesame")
    said = complaints("up", "--no-simulator")
    assert "LEADER_LEASE_TTL must be at least 3 seconds" in said
    assert "sesame" not in said
    assert "Traceback" not in said


def test_settings_are_shown_as_they_are_brackets_included() -> None:
    values = ("[fe80::1]:2379", "CML-[/2.9]*")
    shown = CliRunner().invoke(
        app,
        [
            "config",
            "worker-controller",
            "--set",
            f"ETCD_ENDPOINTS={values[0]}",
            "--set",
            f"WORKER_DISCOVERY_AMI_FILTER={values[1]}",
        ],
    )
    assert shown.exit_code == 0, shown.exception
    assert all(value in shown.stdout for value in values)


def test_a_directory_without_an_lcm_is_named_as_it_is_brackets_included() -> None:
    said = complaints("token", "list", "--data-dir", "/nowhere/[bold]/[/x]")
    assert "/nowhere/[bold]/[/x] is not the data directory of a running LCM" in said
