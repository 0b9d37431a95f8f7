"""What is in `deploy/` fits the program: commands, settings, ports, addresses and files. Nothing is started.

Helm renders the chart where there is one (`HELM`, on the path, or built by `make helm`); elsewhere the
rendering that is kept is looked at.
"""

import base64
import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic_settings import BaseSettings

from lcm.cli.app import app
from lcm.cli.settings import PROCESSES, WrongSettings, load
from lcm.control_plane.api.app import openapi_document
from lcm.web.operations import ControllerOperations

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HELM = os.environ.get("HELM") or shutil.which("helm", path=f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
PORTS = {
    "control-plane": 8080,
    "resource-scheduler": 8081,
    "lablet-controller": 8082,
    "worker-controller": 8083,
}
OF_THE_SDK = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
OF_ETCD = {"ETCD_CA_CERT", "ETCD_CLIENT_CERT", "ETCD_CLIENT_KEY"}
"""Files that are read with the settings; those that deployments name are not here."""
SERVICE_KEYS = {
    "worker-controller": "WORKER_CONTROLLER_API_KEY",
    "resource-scheduler": "RESOURCE_SCHEDULER_API_KEY",
    "lablet-controller": "LABLET_CONTROLLER_API_KEY",
    "control-plane": "CONTROL_PLANE_PEER_API_KEY",
}
SECRET = base64.b64encode(bytes(range(32))).decode()
KEY = "0123456789abcdef0123456789abcdef"


# What the program understands.


def parsed(command: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """The process a command line starts, and its options; fails as the program would."""
    group: Any = typer.main.get_command(app)
    name, *arguments = command
    with group.commands[name].make_context(name, arguments) as context:
        return name, context.params


def variables(process: str) -> set[str]:
    return {setting.variable for setting in load(process, PROCESSES[process], None, {}).shown()}


def settings_of(process: str, config: Path | None, environment: Mapping[str, str]) -> BaseSettings:
    """As the process would read them; fails with all that is wrong."""
    known = {name: value for name, value in environment.items() if name not in OF_THE_SDK}
    unknown = set(known) - variables(process)
    assert not unknown, f"{process} has no setting {unknown}"
    in_file = yaml.safe_load(config.read_text()) if config is not None else {}
    named = {*known, *(name.upper() for name in in_file)}
    return load(
        process, PROCESSES[process], config, known | dict.fromkeys(OF_ETCD & named, __file__)
    ).settings


@pytest.fixture(autouse=True)
def _nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for process in PROCESSES:
        for variable in variables(process):
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_ports_that_deployments_name_are_the_defaults(process: str) -> None:
    assert settings_of(process, None, {}).model_dump()["port"] == PORTS[process]


def test_what_probes_and_prometheus_ask_for_is_answered() -> None:
    wanted = {"/health", "/ready", "/metrics"}
    nobody: Any = None
    of_controllers = ControllerOperations(nobody, nobody, nobody, nobody).app().routes
    assert wanted <= {getattr(route, "path", "") for route in of_controllers}
    assert {"/health", "/ready"} <= openapi_document()["paths"].keys()


# The image.


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_everything_the_image_copies_is_there_and_not_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch(source.rstrip("/"), f"{path}*") for path in allowed), source


def test_the_image_runs_a_process_as_somebody_who_is_not_root() -> None:
    said = dict(instructions())
    assert int(said["USER"]) > 0
    assert yaml.safe_load(said["ENTRYPOINT"]) == ["lcm"]
    assert parsed(yaml.safe_load(said["CMD"]))[0] == "control-plane"
    assert set(map(int, said["EXPOSE"].split())) == set(PORTS.values())


def test_the_image_sets_only_what_is_a_setting() -> None:
    environment = dict(re.findall(r"(\w+)=(\S+)", dict(instructions())["ENV"]))
    for ours in environment.keys() - {"PATH", "PYTHONUNBUFFERED"}:
        assert any(ours in variables(process) for process in PROCESSES), ours
    assert {f"{process.upper().replace('-', '_')}_HOST" for process in PROCESSES} <= environment.keys()


# Compose.

FILLED_IN = {
    **{name: f"{KEY}-{process}" for process, name in SERVICE_KEYS.items()},
    "METRICS_TOKEN": KEY,
    "LCM_SECRET_KEY": SECRET,
    "GRAFANA_PASSWORD": "secret",
}


def interpolated(part: Any) -> Any:
    """As `docker compose` fills in what .env and the defaults say."""
    if isinstance(part, dict):
        return {name: interpolated(one) for name, one in part.items()}
    if isinstance(part, list):
        return [interpolated(one) for one in part]
    if not isinstance(part, str):
        return part

    def value(found: re.Match[str]) -> str:
        name, operator, rest = found.group(1), found.group(2), found.group(3)
        assert name in FILLED_IN or operator == ":-", f"{name} has no default and is not in .env.example"
        return FILLED_IN.get(name, rest or "")

    return re.sub(r"\$\{(\w+)(:-|:\?)?([^}]*)\}", value, part)


@pytest.fixture(scope="module")
def compose() -> Any:
    return interpolated(yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text()))


def ours(compose: Any) -> Iterator[tuple[str, Any]]:
    for name, service in compose["services"].items():
        if service["image"] == "lcm" and name != "certificates":
            yield name, service


def test_every_process_of_the_compose_file_would_start(compose: Any) -> None:
    started = []
    for _, service in ours(compose):
        process, _ = parsed(service["command"])
        settings_of(process, None, service["environment"])
        started += [process] * service.get("deploy", {}).get("replicas", 1)
    assert sorted(started) == sorted([*PROCESSES, *PROCESSES])  # two of each


def test_a_wrong_setting_in_the_compose_file_would_be_noticed(compose: Any) -> None:
    environment = compose["services"]["worker-controller"]["environment"]
    with pytest.raises(AssertionError, match="NO_SUCH"):
        settings_of("worker-controller", None, {**environment, "NO_SUCH": "1"})
    with pytest.raises(WrongSettings):
        settings_of("worker-controller", None, {**environment, "LEADER_LEASE_TTL": "soon"})


def test_the_services_of_the_compose_file_know_each_other(compose: Any) -> None:
    services = compose["services"]
    for name, service in services.items():
        for needed, how in (service.get("depends_on") or {}).items():
            assert needed in services, f"{name} needs {needed}"
            if how["condition"] == "service_healthy" and services[needed]["image"] != "lcm":
                assert "healthcheck" in services[needed]
    plane = services["control-plane-1"]["environment"]
    planes = [name for name, _ in ours(compose) if name.startswith("control-plane")]
    assert plane["CONTROL_PLANE_PEERS"] == ",".join(f"https://{name}:8080" for name in planes)
    etcds = [name for name in services if name.startswith("etcd")]
    assert plane["ETCD_ENDPOINTS"] == ",".join(f"https://{name}:2379" for name in etcds)
    for name in etcds:
        flags = dict(flag.split("=", 1) for flag in services[name]["command"][1:] if "=" in flag)
        assert flags["--initial-cluster"] == ",".join(f"{one}=https://{one}:2380" for one in etcds)
        assert flags["--name"] == name
    mongos = [name for name in services if re.fullmatch(r"mongo-\d", name)]
    assert ",".join(f"{name}:27017" for name in mongos) in plane["STORE_URL"]
    [replica_set] = [
        flag.removeprefix("--replSet=") for flag in services["mongo-1"]["command"] if "replSet" in flag
    ]
    assert plane["STORE_URL"].endswith(f"&replicaSet={replica_set}")
    assert f'_id: "{replica_set}"' in (DEPLOY / "compose" / "replica-set.js").read_text()


def test_the_files_and_volumes_of_the_compose_file_exist(compose: Any) -> None:
    for name, service in compose["services"].items():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), f"{name}: {source}"
            else:
                assert source in compose["volumes"], f"{name}: {source}"
    example = (DEPLOY / "compose" / ".env.example").read_text()
    asked = re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose" / "compose.yaml").read_text())
    assert all(f"\n{name}=\n" in example for name in asked)


def test_no_process_of_the_compose_file_talks_in_clear(compose: Any) -> None:
    services = compose["services"]
    command, made = parsed(services["certificates"]["command"])
    assert command == "certificates"
    names = {name.split(",")[0] for name in made["names"]}
    for name, service in ours(compose):
        settings: Any = settings_of(parsed(service["command"])[0], None, service["environment"])
        assert settings.tls.certificate == Path(f"/certificates/{name}.pem")
        assert settings.tls.key == Path(f"/certificates/{name}-key.pem")
        assert settings.tls.authority == Path("/certificates/ca.pem")
        assert settings.etcd_options().tls is not None
        if name.startswith("control-plane"):
            assert "tls=true" in settings.store_url.get_secret_value()
        else:
            assert settings.control_plane_api_url.startswith("https://")
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    assert "http://" not in text
    front = (DEPLOY / "compose" / "haproxy.cfg").read_text()
    files = re.findall(r"/certificates/([\w-]+)\.pem", text + front)
    assert {re.sub("-(key|both)$", "", file) for file in files} == names | {"ca"}
    for name, service in services.items():
        if "authority:/authority" in service.get("volumes", ()):
            assert name == "certificates", "the key of the authority signs anything"
    for name in [one for one in services if re.fullmatch(r"(etcd|mongo)-\d", one)]:
        flags = services[name]["command"]
        wanted = (
            ["--client-cert-auth", "--peer-client-cert-auth"] if "etcd" in name else ["--tlsMode=requireTLS"]
        )
        assert set(wanted) <= set(flags)
    for port in (8080, 8081):
        assert re.search(rf"bind :{port} ssl crt /certificates/front-both\.pem", front)
    assert re.search(r"default-server .* ssl verify required ca-file /certificates/ca\.pem", front)
    for job in yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]:
        assert job["scheme"] == "https"
        assert job["tls_config"].get("insecure_skip_verify") is None


def test_each_service_of_the_compose_file_has_a_key_of_its_own_and_no_other(compose: Any) -> None:
    for name, service in ours(compose):
        process = parsed(service["command"])[0]
        keys = {variable for variable in service["environment"] if variable.endswith("_API_KEY")}
        if process == "control-plane":
            assert keys == set(SERVICE_KEYS.values())
        else:
            assert keys == {"CONTROL_PLANE_API_KEY"}
            assert service["environment"]["CONTROL_PLANE_API_KEY"] == FILLED_IN[SERVICE_KEYS[process]], name


def test_images_are_pinned_to_a_version(compose: Any) -> None:
    foreign = {s["image"] for s in compose["services"].values() if s["image"] != "lcm"}
    assert all(re.search(r":v?\d", image) for image in foreign), foreign


def test_no_image_is_of_a_version_with_a_known_hole(compose: Any) -> None:
    for name, fixed in (
        ("quay.io/coreos/etcd", (3, 5, 30)),
        ("grafana/grafana", (11, 6, 14)),
        ("mongo", (7, 0, 32)),
    ):
        images = {service["image"] for service in compose["services"].values()}
        found = {image.partition(":")[2] for image in images if image.startswith(f"{name}:")}
        assert found, name
        assert all(tuple(map(int, tag.removeprefix("v").split("."))) >= fixed for tag in found), found


def test_prometheus_and_the_front_find_every_process(compose: Any) -> None:
    found = {}
    for job in yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]:
        for target in [t for group in job.get("static_configs", ()) for t in group["targets"]]:
            host, _, port = target.partition(":")
            found[host] = int(port)
        for names in job.get("dns_sd_configs", ()):
            found |= dict.fromkeys(names["names"], names["port"])
    assert found == {name: PORTS[parsed(service["command"])[0]] for name, service in ours(compose)}
    front = (DEPLOY / "compose" / "haproxy.cfg").read_text()
    servers = re.findall(r"^  server \w+ (\S+)", front, re.MULTILINE)
    assert servers == [f"{name}:8080" for name, _ in ours(compose) if name.startswith("control-plane")]
    assert "httpchk GET /ready" in front
    jobs = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())["scrape_configs"]
    mounted = {f"/run/secrets/{name}" for name in compose["services"]["prometheus"]["secrets"]}
    assert {job["authorization"]["credentials_file"] for job in jobs} == mounted
    assert "option forwardfor" in front, "guesses would count for everyone behind it"
    address = compose["services"]["front"]["networks"]["default"]["ipv4_address"]
    assert {s["environment"]["FORWARDED_ALLOW_IPS"] for name, s in ours(compose) if "plane" in name} == {
        address
    }


def test_the_public_address_leads_to_no_route_of_controllers_and_to_no_metrics(compose: Any) -> None:
    """M7. They have a port of their own, which is not published."""
    text = (DEPLOY / "compose" / "haproxy.cfg").read_text()
    frontends = dict(re.findall(r"^frontend (\w+)\n((?:  .*\n)+)", text, re.MULTILINE))
    public, internal = frontends["lcm"], frontends["controllers"]
    [denied] = re.findall(r"http-request deny .*", public)
    assert denied.endswith("if { path,url_dec -i -m beg /api/internal /metrics }")
    assert "deny" not in internal
    bound = {name: re.findall(r"bind :(\d+)", rules) for name, rules in frontends.items()}
    assert {port.rpartition(":")[2] for port in compose["services"]["front"]["ports"]} == set(bound["lcm"])
    for name, service in ours(compose):
        if not name.startswith("control-plane"):
            url = service["environment"]["CONTROL_PLANE_API_URL"]
            assert url == f"https://front:{bound['controllers'][0]}"


# systemd.

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def unit(path: Path) -> Mapping[str, Any]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    assert parser.sections() == ["Unit", "Service", "Install"]
    return parser["Service"]


def test_there_is_a_unit_for_every_process() -> None:
    assert [path.stem.removeprefix("lcm-") for path in UNITS] == sorted(PROCESSES)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_its_process_with_settings_that_hold(path: Path) -> None:
    service = unit(path)
    executable, *command = service["ExecStart"].split()
    process, options = parsed(command)
    assert (executable, process) == ("/opt/lcm/bin/lcm", path.stem.removeprefix("lcm-"))
    assert str(options["config"]) == "/etc/lcm/lcm.yaml"
    assert service["EnvironmentFile"] == f"/etc/lcm/{process}.env"
    lines = (DEPLOY / "systemd" / f"{process}.env").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert {environment.pop(name, "") for name in list(environment) if name != "STORE_URL"} == {""}, (
        "a secret that ships works for anyone"
    )
    settings: Any = settings_of(process, DEPLOY / "systemd" / "lcm.yaml", environment)
    assert settings.tls.certificate is not None
    assert settings.etcd_options().tls is not None
    addresses = yaml.safe_load((DEPLOY / "systemd" / "lcm.yaml").read_text())
    for name in ("etcd_endpoints", "control_plane_api_url", "control_plane_peers"):
        assert "http://" not in str(addresses[name])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_gets_the_secrets_of_its_process_and_of_no_other(path: Path) -> None:
    process = path.stem.removeprefix("lcm-")
    text = (DEPLOY / "systemd" / f"{process}.env").read_text()
    named = set(re.findall(r"^(\w+)=", text, re.MULTILINE))
    assert named <= variables(process)
    keys = {name for name in named if name.endswith("_API_KEY")}
    own = set(SERVICE_KEYS.values()) if process == "control-plane" else {"CONTROL_PLANE_API_KEY"}
    assert keys == own
    made = (DEPLOY / "systemd" / "sysusers.conf").read_text()
    assert re.search(rf"^u {unit(path)['User']} -:{unit(path)['Group']} ", made, re.MULTILINE)
    users = [unit(one)["User"] for one in UNITS]
    assert len(set(users)) == len(users), "processes of one user can read each other's environment"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_may_do_nothing_it_does_not_need(path: Path) -> None:
    service = unit(path)
    assert service["User"] == path.stem
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    for option in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces"):
        assert service[option] == "yes"
    assert int(service["LimitNOFILE"]) >= 16_384, "connections are bounded by it"
    keeps_files = path.stem == "lcm-control-plane"
    assert ("StateDirectory" in service) is keeps_files


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_a_unit(path: Path, tmp_path: Path) -> None:
    here = re.sub(r"^(User|Group)=lcm", r"\1=root", path.read_text(), flags=re.MULTILINE)
    (tmp_path / path.name).write_text(here.replace("/opt/lcm/bin/lcm", "/bin/true"))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / path.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert path.name not in told.stderr, told.stderr


# Helm.

CHART = DEPLOY / "helm" / "lcm"
RENDERED = DEPLOY / "helm" / "rendered.yaml"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    documents = [one for one in yaml.safe_load_all(RENDERED.read_text()) if one]
    return {(one["kind"], one["metadata"]["name"].removeprefix("lcm-")): one for one in documents}


def test_the_templates_use_values_that_exist() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values\.([\w.]+)", template.read_text()):
            place = values
            for part in path.split("."):
                assert part in place, f"{template.name}: {path}"
                place = place[part]


def pods(objects: Mapping[tuple[str, str], Any]) -> Iterator[tuple[str, Any]]:
    for (kind, name), one in objects.items():
        if kind in ("Deployment", "StatefulSet"):
            yield name, one["spec"]


def test_every_process_of_the_chart_would_start(
    objects: Mapping[tuple[str, str], Any], tmp_path: Path
) -> None:
    config = tmp_path / "lcm.yaml"
    config.write_text(objects["ConfigMap", "lcm"]["data"]["lcm.yaml"])
    secrets = {"STORE_URL": "mongodb://db/lcm", "LCM_SECRET_KEY": SECRET}
    for name, spec in pods(objects):
        [container] = spec["template"]["spec"]["containers"]
        process, options = parsed(container["args"])
        assert process == name
        assert str(options["config"]) == "/config/lcm.yaml"
        environment = {
            one["name"]: secrets.get(one["name"], f"{KEY}-{one['name']}") for one in container["env"]
        }
        settings: Any = settings_of(process, config, environment)
        assert settings.tls.certificate == Path("/tls/tls.crt")
        assert {"name": "tls", "mountPath": "/tls"} in container["volumeMounts"], "a subPath is not renewed"
        assert {container[probe]["httpGet"]["scheme"] for probe in ("livenessProbe", "readinessProbe")} == {
            "HTTPS"
        }
        keys = {
            one["valueFrom"]["secretKeyRef"]["key"]
            for one in container["env"]
            if one["name"].endswith("_API_KEY")
        }
        assert keys == (set(SERVICE_KEYS.values()) if process == "control-plane" else {SERVICE_KEYS[process]})
        assert container["ports"][0]["containerPort"] == PORTS[process]
        probed = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
        assert probed == {"/health", "/ready"}
        assert spec["replicas"] == 2
        assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert {name for name, _ in pods(objects)} == set(PROCESSES)


def test_the_control_planes_of_the_chart_find_each_other(objects: Mapping[tuple[str, str], Any]) -> None:
    config = yaml.safe_load(objects["ConfigMap", "lcm"]["data"]["lcm.yaml"])
    spec = objects["StatefulSet", "control-plane"]["spec"]
    names = [
        f"https://lcm-control-plane-{n}.{spec['serviceName']}.lcm.svc:8080" for n in range(spec["replicas"])
    ]
    certified = (CHART / "templates" / "tls.yaml").read_text()
    assert '(print "*." $service "-each." .Release.Namespace ".svc")' in certified
    assert config["control_plane_peers"].split(",") == names
    assert objects["Service", "control-plane-each"]["spec"]["clusterIP"] == "None"
    for service in ("control-plane", "control-plane-each"):
        selector = objects["Service", service]["spec"]["selector"]
        assert selector.items() <= spec["template"]["metadata"]["labels"].items()


def test_pods_are_reached_only_by_who_needs_them(objects: Mapping[tuple[str, str], Any]) -> None:
    own = {"matchLabels": {"app.kubernetes.io/name": "lcm", "app.kubernetes.io/instance": "lcm"}}
    scrapers, clients = (
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
        for name in ("monitoring", "ingress-nginx")
    )
    controllers = objects["NetworkPolicy", "controllers"]["spec"]
    planes = objects["NetworkPolicy", "control-plane"]["spec"]
    assert controllers["ingress"] == [{"from": [scrapers]}]
    assert planes["ingress"] == [{"from": [{"podSelector": own}, scrapers, clients]}]
    component = "app.kubernetes.io/component"
    for name, spec in pods(objects):
        labels = spec["template"]["metadata"]["labels"]
        is_plane = name == "control-plane"
        policy = (planes if is_plane else controllers)["podSelector"]
        assert policy["matchLabels"].items() <= labels.items()
        [*others] = policy.get("matchExpressions", [])
        assert is_plane or others == [{"key": component, "operator": "NotIn", "values": ["control-plane"]}]
        assert labels[component] == name
    assert controllers["policyTypes"] == planes["policyTypes"] == ["Ingress"]


def test_the_secret_the_chart_makes_has_every_key_that_is_asked_for(
    objects: Mapping[tuple[str, str], Any],
) -> None:
    made = (CHART / "templates" / "secret.yaml").read_text()
    for _, spec in pods(objects):
        [container] = spec["template"]["spec"]["containers"]
        for one in container["env"]:
            assert f"\n  {one['valueFrom']['secretKeyRef']['key']}: " in made
    assert "\n  keys.json: " in made


@pytest.mark.skipif(HELM is None, reason="no Helm here; make helm builds one where there is Go")
def test_the_chart_brings_the_alerts_and_scrapes_every_process_by_the_name_of_its_job() -> None:
    assert HELM is not None
    options = (
        "--set",
        "existingSecret=lcm-secrets,tls.secret=mine,monitoring.enabled=true,monitoring.labels.release=mine",
    )
    rendered = subprocess.run(
        [HELM, "template", "lcm", CHART, *options], check=True, capture_output=True, text=True
    )
    documents = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(rendered.stdout)}
    rules, monitor = documents["PrometheusRule", "lcm"], documents["ServiceMonitor", "lcm"]
    assert rules["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    assert {one["metadata"]["labels"]["release"] for one in (rules, monitor)} == {"mine"}
    scraped = documents["Service", "lcm-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= scraped["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] == scraped["spec"]["ports"][0]["name"]
    [job] = endpoint["relabelings"]
    assert (job["targetLabel"], job["replacement"]) == ("job", "lcm-$1")
    components = set()
    for kind, name in documents:
        if kind in ("Deployment", "StatefulSet"):
            pod = documents[kind, name]["spec"]["template"]
            assert scraped["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            assert (
                pod["spec"]["containers"][0]["ports"][0]["name"] == scraped["spec"]["ports"][0]["targetPort"]
            )
            components.add(pod["metadata"]["labels"]["app.kubernetes.io/component"])
    assert components == set(PROCESSES)


@pytest.mark.skipif(HELM is None, reason="no Helm here; make helm builds one where there is Go")
def test_helm_finds_no_fault_and_renders_what_is_kept() -> None:
    assert HELM is not None
    generate = "generateSecret=true"
    subprocess.run(
        [HELM, "lint", "--strict", "--quiet", "--set", generate, CHART], check=True, capture_output=True
    )
    options = ("--namespace", "lcm", "--set", "existingSecret=lcm-secrets,tls.secret=lcm-tls")
    rendered = subprocess.run(
        [HELM, "template", "lcm", CHART, *options], check=True, capture_output=True, text=True
    )
    assert rendered.stdout == RENDERED.read_text(), "run deploy/helm/render"
    refused = subprocess.run([HELM, "template", "lcm", CHART], check=False, capture_output=True, text=True)
    assert "existingSecret" in refused.stderr, "each rendering would make other keys"
    made = subprocess.run(
        [HELM, "template", "lcm", CHART, "--set", generate], check=True, capture_output=True, text=True
    )
    secrets = [one for one in yaml.safe_load_all(made.stdout) if one and one["kind"] == "Secret"]
    [data] = [secret["stringData"] for secret in secrets if "stringData" in secret]
    names = ("STORE_URL", "LCM_SECRET_KEY", *SERVICE_KEYS.values())
    settings_of("control-plane", None, {name: data[name] for name in names})
    keys = yaml.safe_load(data["keys.json"])
    assert keys.keys() == {"viewer", "operator", "admin", "controller"}
    assert keys["controller"] not in {data[name] for name in SERVICE_KEYS.values()}
