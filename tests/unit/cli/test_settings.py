"""Sources of settings, their display, and the report of wrong ones."""

from datetime import timedelta
from pathlib import Path

import pytest

from lcm.cli.settings import DEFAULT, ENVIRONMENT, FLAG, MASK, PROCESSES, Loaded, WrongSettings, load
from lcm.control_plane.policies import Policies
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.domain.lablet.ports import PortRange
from lcm.domain.lablet.timeslot import TimeslotPolicy
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.worker_controller.settings import WorkerControllerSettings
from support.fleet import REGION


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ETCD_ENDPOINTS", "ETCD_HOST", "ETCD_PORT", "LEADER_LEASE_TTL", "RECONCILE_INTERVAL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lcm.yaml"


def controller(config: Path | None = None, **flags: str) -> Loaded[WorkerControllerSettings]:
    return load("worker-controller", WorkerControllerSettings, config, flags)


def source_of(loaded: Loaded[WorkerControllerSettings], variable: str) -> tuple[str, str]:
    [found] = [(s.value, s.source) for s in loaded.shown() if s.variable == variable]
    return found


def problems_of(config: Path | None = None, **flags: str) -> list[str]:
    with pytest.raises(WrongSettings) as wrong:
        controller(config, **flags)
    return wrong.value.problems


def test_flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_of(controller(file_with(file, "")), "LEADER_LEASE_TTL") == ("15", DEFAULT)
    file_with(file, "leader_lease_ttl: 16\nreconcile_interval: 1\n")
    assert source_of(controller(file), "LEADER_LEASE_TTL") == ("16", str(file))
    monkeypatch.setenv("LEADER_LEASE_TTL", "17")
    assert source_of(controller(file), "LEADER_LEASE_TTL") == ("17", ENVIRONMENT)
    loaded = controller(file, LEADER_LEASE_TTL="18")
    assert source_of(loaded, "LEADER_LEASE_TTL") == ("18", FLAG)
    assert source_of(loaded, "RECONCILE_INTERVAL") == ("1.0", str(file))
    assert loaded.settings.leader_lease_ttl == 18


def file_with(file: Path, content: str) -> Path:
    file.write_text(content)
    return file


def test_the_core_settings_have_the_names_and_defaults_of_the_contract() -> None:
    shown = {setting.variable: setting.value for setting in controller().shown()}
    assert (
        shown.items()
        >= {
            "ETCD_HOST": "localhost",
            "ETCD_PORT": "2379",
            "ETCD_ENDPOINTS": "",
            "ETCD_KEY_PREFIX": "/lcm",
            "CONTROL_PLANE_API_URL": "http://localhost:8080",
            "CONTROL_PLANE_API_KEY": "",
            "WORKER_CONTROLLER_INSTANCE_ID": "auto",
            "LEADER_LEASE_TTL": "15",
            "RECONCILE_INTERVAL": "30.0",
            "RECONCILE_POLLING_ENABLED": "True",
        }.items()
    )


def test_the_scaling_settings_have_the_names_and_defaults_of_the_contract() -> None:
    plane = load("control-plane", ControlPlaneSettings, None, {})
    shown = {setting.variable: setting.value for setting in (*plane.shown(), *controller().shown())}
    assert (
        shown.items()
        >= {
            "SCALE_DOWN_ENABLED": "False",
            "MIN_WORKERS": "0",
            "MAX_WORKERS_PER_REGION": "10",
            "SCALE_UP_COOLDOWN_SECONDS": "300.0",
            "SCALE_DOWN_COOLDOWN_SECONDS": "600.0",
            "PROVISIONING_TIMEOUT_SECONDS": "900.0",
            "DRAIN_TIMEOUT_SECONDS": "14400.0",
        }.items()
    )


def test_the_settings_of_sessions_have_the_names_and_defaults_of_the_contract() -> None:
    plane = load("control-plane", ControlPlaneSettings, None, {})
    scheduler = load("resource-scheduler", ResourceSchedulerSettings, None, {})
    shown = {setting.variable: setting.value for setting in (*plane.shown(), *scheduler.shown())}
    assert (
        shown.items()
        >= {
            "TIMESLOT_LEAD_TIME_MINUTES": "35.0",
            "WORKER_BOOT_MINUTES": "25.0",
            "LAB_START_MINUTES": "5.0",
            "TIMESLOT_EXPIRY_GRACE_MINUTES": "5.0",
            "TIMESLOT_MANAGER_INTERVAL_SECONDS": "60.0",
            "PORT_RANGE_MIN": "2000",
            "PORT_RANGE_MAX": "7999",
            "PORT_RESERVED": "9090",
            "BOOKING_OVERCOMMIT": "warn",
            "REPLACE_LOST_SESSIONS": "True",
            "PLACEMENT_HEADROOM_PERCENT": "0.0",
            "MAX_BOOKING_DAYS": "90.0",
            "MAX_RETRIES": "35",
            "HANDOVER_LATE_MINUTES": "0.0",
            "CAPACITY_REFRESH_INTERVAL_SECONDS": "30.0",
        }.items()
    )


def plane_policies(**flags: str) -> Policies:
    return load("control-plane", ControlPlaneSettings, None, flags).settings.policies({"here": REGION})


def test_without_settings_the_rules_are_those_of_the_domain() -> None:
    assert plane_policies() == Policies(regions=("here",), default_region="us-east-1")


def test_configurations_are_extracted_only_where_that_is_set() -> None:
    assert plane_policies(pause_extract_timeout_seconds="30").idle.extract_within is None
    assert plane_policies(pause_extract_configs="true").idle.extract_within == timedelta(seconds=60)
    limited = plane_policies(pause_extract_configs="true", pause_extract_timeout_seconds="30")
    assert limited.idle.extract_within == timedelta(seconds=30)


def test_every_setting_of_sessions_becomes_a_rule() -> None:
    policies = plane_policies(
        TIMESLOT_LEAD_TIME_MINUTES="40",
        WORKER_BOOT_MINUTES="20",
        LAB_START_MINUTES="6",
        TIMESLOT_EXPIRY_GRACE_MINUTES="7",
        TIMESLOT_TEARDOWN_MINUTES="8",
        HANDOVER_LATE_MINUTES="9",
        MAX_BOOKING_DAYS="10",
        PORT_RANGE_MIN="3000",
        PORT_RANGE_MAX="9999",
        PORT_RESERVED="9090, 9091",
        ACCESS_PRIVATE_IP="true",
        CML_WORKER_API_PORT="8443",
        BOOKING_OVERCOMMIT="refuse",
        REPLACE_LOST_SESSIONS="false",
        PLACEMENT_HEADROOM_PERCENT="20",
        MAX_RETRIES="3",
    )
    assert policies.times == TimeslotPolicy(
        lead=timedelta(minutes=40),
        worker_boot=timedelta(minutes=20),
        lab_lead=timedelta(minutes=6),
        grace=timedelta(minutes=7),
        teardown=timedelta(minutes=8),
        handover_late=timedelta(minutes=9),
        max_booking=timedelta(days=10),
    )
    assert policies.ports == PortRange(first=3000, last=9999, reserved=frozenset({9090, 9091}))
    assert (policies.gives_private_ip, policies.cml_port) == (True, 8443)
    assert (policies.refuses_overbooking, policies.can_replace_lost) == (True, False)
    assert (policies.headroom_percent, policies.max_retries) == (20, 3)
    assert policies.idle.lead == policies.times.lead


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"PORT_RANGE_MIN": "1999"}, "PORT_RANGE_MIN"),
        ({"PORT_RANGE_MAX": "10000"}, "PORT_RANGE_MAX"),
        ({"PORT_RANGE_MIN": "5000", "PORT_RANGE_MAX": "4000"}, "PORT_RANGE_MIN=5000 is above"),
        ({"PORT_RESERVED": "ssh"}, "PORT_RESERVED"),
        ({"BOOKING_OVERCOMMIT": "ask"}, "BOOKING_OVERCOMMIT"),
        ({"MAX_RETRIES": "0"}, "MAX_RETRIES"),
        ({"LAB_START_MINUTES": "40"}, "raise the second"),
    ],
)
def test_settings_of_sessions_that_contradict_each_other_are_refused(
    flags: dict[str, str], named: str
) -> None:
    with pytest.raises(WrongSettings) as wrong:
        load("control-plane", ControlPlaneSettings, None, flags)
    [problem] = wrong.value.problems
    assert named in problem


def test_one_file_serves_all_processes(file: Path) -> None:
    file_with(file, "control_plane_port: 1\nworker_controller_port: 2\netcd_endpoints: [a:1, b:2]\n")
    for name, kind in PROCESSES.items():
        load(name, kind, file, {})
    assert controller(file).settings.etcd_options().endpoints == ("a:1", "b:2")
    assert load("control-plane", ControlPlaneSettings, file, {}).settings.port == 1


def test_roles_of_an_issuer_are_an_object_in_the_environment_and_a_mapping_in_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def roles(config: Path | None = None) -> dict[str, str]:
        return dict(load("control-plane", ControlPlaneSettings, config, {}).settings.oidc_roles)

    assert roles(file_with(file, "oidc_roles: {lab-crew: operator}")) == {"lab-crew": "operator"}
    monkeypatch.setenv("OIDC_ROLES", '{"lab-admins": "admin"}')
    assert roles() == dict(ControlPlaneSettings().oidc_roles) == {"lab-admins": "admin"}
    monkeypatch.setenv("OIDC_ROLES", "lab-admins=admin")
    with pytest.raises(WrongSettings, match=r"OIDC_ROLES \(environment\): write a JSON object"):
        roles()


def test_secrets_are_masked() -> None:
    key = "sesame and more of it to make a long key"
    shown = controller(CONTROL_PLANE_API_KEY=key, ETCD_PASSWORD="sesame").shown()
    assert {s.value for s in shown if s.variable in ("CONTROL_PLANE_API_KEY", "ETCD_PASSWORD")} == {MASK}
    url = "mongodb://lcm:sesame@db/lcm"
    plane = load("control-plane", ControlPlaneSettings, None, {"STORE_URL": url}).shown()
    assert not [s for s in (*shown, *plane) if "sesame" in s.value]


def test_all_wrong_settings_are_reported_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_with(file, "leader_lease_tll: 3\nreconcile_interval: -1\n")
    monkeypatch.setenv("WORKER_CONTROLLER_PORT", "70000")
    problems = problems_of(file, LEADER_LEASE_TTL="soon")
    assert [problem.split(":")[0] for problem in sorted(problems)] == [
        "LEADER_LEASE_TTL (flag)",
        f"RECONCILE_INTERVAL ({file})",
        "WORKER_CONTROLLER_PORT (environment)",
        f"leader_lease_tll ({file})",
    ]
    assert any("did you mean LEADER_LEASE_TTL?" in problem for problem in problems)


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(WrongSettings) as wrong:
        load("control-plane", ControlPlaneSettings, None, {"STORE_URL": "postgres://lcm:sesame@db"})
    assert "STORE_URL (flag): write mongodb://host/database" in str(wrong.value)
    assert "sesame" not in str(wrong.value)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("key", ["a", "replace-me", "replace-me-replace-me-replace-me", "a" * 40])
def test_no_process_starts_with_a_key_that_can_be_guessed(process: str, key: str) -> None:
    with pytest.raises(WrongSettings) as wrong:
        load(process, PROCESSES[process], None, {"CONTROL_PLANE_API_KEY": key})
    assert "CONTROL_PLANE_API_KEY (flag): the key" in str(wrong.value)
    assert "openssl rand -hex 32" in str(wrong.value)


@pytest.mark.parametrize("name", ["CML_WORKER_API_PASSWORD", "CML_DEFAULT_PASSWORD", "ETCD_PASSWORD"])
def test_no_process_starts_with_the_password_of_an_example(name: str) -> None:
    with pytest.raises(WrongSettings, match="placeholder"):
        load("worker-controller", WorkerControllerSettings, None, {name: "change-me"})


@pytest.mark.parametrize("content", ["- a\n", "just text", "a: [1\n", "\0"])
def test_a_file_without_settings_is_reported(file: Path, content: str) -> None:
    [problem] = problems_of(file_with(file, content))
    assert problem.startswith(str(file))


def test_a_missing_file_is_reported(file: Path) -> None:
    [problem] = problems_of(file)
    assert "No such file" in problem


# etcd.


def test_without_a_word_about_etcd_none_is_used() -> None:
    assert not controller().settings.uses_etcd


@pytest.mark.parametrize(
    ("flags", "endpoints"),
    [
        ({"ETCD_HOST": "etcd1"}, ("etcd1:2379",)),
        ({"ETCD_PORT": "12379"}, ("localhost:12379",)),
        ({"ETCD_ENDPOINTS": "a:1, b:2,", "ETCD_HOST": "c"}, ("a:1", "b:2")),
    ],
)
def test_etcd_is_used_when_it_is_named(flags: dict[str, str], endpoints: tuple[str, ...]) -> None:
    settings = load("worker-controller", WorkerControllerSettings, None, flags).settings
    assert settings.uses_etcd
    assert settings.etcd_options().endpoints == endpoints


def test_https_means_tls_and_the_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    settings = controller(ETCD_ENDPOINTS="https://a:1", ETCD_CA_CERT=str(tmp_path / "ca.pem")).settings
    tls = settings.etcd_options().tls
    assert tls is not None
    assert tls.ca == b"authority"


@pytest.mark.parametrize(
    "flags",
    [
        {"ETCD_ENDPOINTS": "ftp://a"},
        {"ETCD_HOST": "a", "ETCD_CA_CERT": "/nowhere/ca.pem"},
        {"ETCD_HOST": "a", "ETCD_CLIENT_CERT": __file__},
    ],
)
def test_unusable_etcd_settings_are_refused_at_the_start(flags: dict[str, str]) -> None:
    with pytest.raises(WrongSettings) as wrong:
        load("worker-controller", WorkerControllerSettings, None, flags)
    [problem] = wrong.value.problems
    assert problem.startswith("ETCD_")


@pytest.mark.parametrize(
    "address", ["https://root:sesame@etcd:2379", "root:sesame@etcd", "ftp://root:sesame@a"]
)
def test_a_login_in_the_address_of_etcd_is_refused_and_not_repeated(address: str) -> None:
    [problem] = problems_of(ETCD_ENDPOINTS=address)
    assert "ETCD_USERNAME and ETCD_PASSWORD" in problem
    assert "sesame" not in problem


# Timing.


def test_the_defaults_go_together() -> None:
    assert controller(ETCD_HOST="etcd").settings.leader_lease_ttl == 15


@pytest.mark.parametrize(("ttl", "timeout"), [("3", "2"), ("6", "2"), ("15", "4.6"), ("30", "10")])
def test_a_lease_too_short_for_slow_answers_is_refused_with_both_names(ttl: str, timeout: str) -> None:
    [problem] = problems_of(ETCD_HOST="etcd", LEADER_LEASE_TTL=ttl, ETCD_CALL_TIMEOUT_SECONDS=timeout)
    assert f"LEADER_LEASE_TTL={ttl} is too short for ETCD_CALL_TIMEOUT_SECONDS={timeout}" in problem


@pytest.mark.parametrize(("ttl", "timeout"), [("7", "2"), ("3", "0.8"), ("15", "4"), ("60", "15")])
def test_a_lease_long_enough_is_accepted(ttl: str, timeout: str) -> None:
    controller(ETCD_HOST="etcd", LEADER_LEASE_TTL=ttl, ETCD_CALL_TIMEOUT_SECONDS=timeout)


def test_no_lease_is_shorter_than_three_seconds() -> None:
    [problem] = problems_of(LEADER_LEASE_TTL="2")
    assert "at least 3 seconds" in problem
