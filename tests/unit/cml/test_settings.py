"""How CML is reached and trusted, as it is set; what would have no effect is refused at start."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from lcm.cml.proxy import Proxy
from lcm.cml.tls import CmlTrust
from lcm.domain.idle import EVIDENCE_MAX_AGE
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.worker_controller.settings import WorkerControllerSettings


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("203.0.113.9", True),
        ("10.1.2.3", False),
        ("lab.internal", False),
        ("internal", False),
        ("notinternal", True),
        ("cml.example.com", False),
        ("127.64.0.4", False),
        ("localhost", False),
        ("::1", False),
        ("2001:db8::1", True),
    ],
)
def test_a_proxy_serves_all_hosts_but_its_exceptions_and_loopback(host: str, *, is_served: bool) -> None:
    proxy = Proxy.parse("http://proxy:3128", "10.0.0.0/8, .internal,cml.example.com,fd00::/8")
    assert proxy.serves(host) is is_served


def test_no_host_is_served_where_all_are_excepted() -> None:
    assert not Proxy.parse("proxy:3128", "*").serves("203.0.113.9")


@pytest.mark.parametrize("url", ["https://proxy:3128", "socks5://proxy:1080", "http://", "http://proxy:x"])
def test_a_proxy_that_cannot_be_used_is_refused_at_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", url)
    for settings in (WorkerControllerSettings, LabletControllerSettings):
        with pytest.raises(ValidationError, match="HTTPS_PROXY"):
            settings()


def test_the_password_of_a_proxy_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://lcm:canary@proxy:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    settings = WorkerControllerSettings()
    proxy = settings.cml_proxy
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.exceptions) == ("proxy", 3128, ("10.0.0.0/8",))
    assert "canary" not in f"{settings!r} {proxy!r}"


@pytest.mark.parametrize("name", ["CML_WORKER_API_CA_FILE", "CML_WORKER_API_HOST_NAMES"])
def test_an_authority_without_verification_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "*.cml.example.com")
    with pytest.raises(ValidationError, match="CML_WORKER_API_VERIFY_SSL=true"):
        WorkerControllerSettings()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_cannot_be_read_is_refused(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("CML_WORKER_API_VERIFY_SSL", "true")
    monkeypatch.setenv("CML_WORKER_API_CA_FILE", str(file))
    with pytest.raises(ValidationError, match="CML_WORKER_API_CA_FILE"):
        WorkerControllerSettings()


def test_host_names_are_patterns_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CML_WORKER_API_VERIFY_SSL", "true")
    monkeypatch.setenv("CML_WORKER_API_HOST_NAMES", "*.CML.example.com, lab.example.com")
    tls = WorkerControllerSettings().cml_tls
    assert (tls.trust, tls.host_names) == (CmlTrust.CA, ("*.cml.example.com", "lab.example.com"))


def test_telemetry_may_take_no_longer_than_it_proves_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WorkerControllerSettings().cml_telemetry_timeout_seconds < EVIDENCE_MAX_AGE.total_seconds()
    monkeypatch.setenv("CML_TELEMETRY_TIMEOUT_SECONDS", "31")
    with pytest.raises(ValidationError, match="less than 30"):
        WorkerControllerSettings()
