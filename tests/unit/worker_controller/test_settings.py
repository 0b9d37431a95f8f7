"""Settings of the worker controller about monitoring."""

import pytest
from pydantic import SecretStr, ValidationError

from lcm.cml.tls import CmlTrust
from lcm.worker_controller.settings import WorkerControllerSettings


def test_the_defaults_are_those_of_the_mission() -> None:
    settings = WorkerControllerSettings()
    assert settings.cml_websocket_enabled is True
    assert settings.cml_websocket_metrics_report_interval == 10
    assert settings.cml_websocket_reconnect_max_interval == 30
    assert settings.cml_websocket_max_reconnect_attempts == 3
    assert settings.cml_websocket_health_timeout == 60
    assert settings.metrics_poll_interval == 60
    assert (settings.idle_detection_interval, settings.min_workers) == (300, 0)
    assert settings.use_private_ip_for_monitoring is False
    assert settings.cml_worker_api_verify_ssl is CmlTrust.PIN
    assert (settings.cml_credentials.username, settings.cml_credentials.password) == ("admin", "")


@pytest.mark.parametrize("name", ["METRICS_POLL_INTERVAL", "METRICS_COLLECT_INTERVAL"])
def test_the_poll_interval_has_two_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "15")
    assert WorkerControllerSettings().metrics_poll_interval == 15


@pytest.mark.parametrize(
    ("said", "trust"),
    [("false", CmlTrust.PIN), ("True", CmlTrust.CA), ("off", CmlTrust.NONE), ("FALSE", CmlTrust.PIN)],
)
def test_checking_certificates_is_only_off_when_that_is_said(
    said: str, trust: CmlTrust, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CML_WORKER_API_VERIFY_SSL", said)
    assert WorkerControllerSettings().cml_worker_api_verify_ssl is trust
    monkeypatch.setenv("CML_WORKER_API_VERIFY_SSL", "maybe")
    with pytest.raises(ValidationError):
        WorkerControllerSettings()


def test_a_login_for_workers_wins_over_the_default_and_is_never_shown() -> None:
    settings = WorkerControllerSettings(
        cml_worker_api_username="lcm",
        cml_worker_api_password=SecretStr("canary"),
        cml_default_password=SecretStr("other"),
    )
    assert (settings.cml_credentials.username, settings.cml_credentials.password) == ("lcm", "canary")
    assert "canary" not in f"{settings!r} {settings.cml_credentials!r}"
