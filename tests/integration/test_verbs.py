"""The fleet at a terminal: verbs, selections, formats, contexts and exit codes, beside a running LCM."""

import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcm.client.contexts import config_path, read_contexts
from lcm.simulator.main import simulated_password
from support.canaries import suite_canaries
from support.patience import PATIENCE_SECONDS
from support.processes import Ended, RunningLcm, lcm_to_its_end, running_lcm


@pytest.fixture(autouse=True)
def context(lcm: RunningLcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LCM_URL", lcm.url)
    monkeypatch.setenv("LCM_TOKEN", lcm.ready.token)


def lcm_does(*arguments: str) -> str:
    done = lcm_to_its_end(*arguments)
    assert done.code == 0, done.stderr
    return done.stdout


def lcm_refuses(code: int, *arguments: str) -> str:
    done = lcm_to_its_end(*arguments)
    assert (done.code, done.stdout) == (code, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_worker_lives_from_a_terminal() -> None:
    patience = f"{PATIENCE_SECONDS:.0f}s"
    made = lcm_does(
        "create", "worker", "life", "--template", "small", "--tag", "team=x", "--wait", "--timeout", patience
    )
    assert made == "worker/life created\nworker/life ready\n"
    (row,) = lcm_does("get", "workers", "-l", "team=x,template=small").splitlines()[1:]
    assert row.split()[:3] == ["life", "ready", "small"]
    assert "What holds it" in lcm_does("explain", "life")
    assert "Last changes" in lcm_does("describe", "worker/life")
    assert lcm_does("hold", "life", "--for", "2h", "--reason", "exam").startswith("worker/life is held until")
    assert json.loads(lcm_does("get", "worker", "life", "-o", "json"))["hold"]["reason"] == "exam"
    assert lcm_does("release", "life") == "worker/life release accepted\n"
    foreseen = lcm_does("stop", "life", "--dry-run")
    assert "would accept: -$0.02 per hour" in foreseen
    stopped = lcm_does("stop", "life", "--wait", "--timeout", patience)
    assert stopped == "worker/life stop accepted\nworker/life stopped\n"
    assert "$0.00" in lcm_does("cost").splitlines()[1]
    statuses = lcm_does("timeline", "life", "-o", "jsonpath={.items[*].to}").splitlines()
    assert (statuses[0], statuses[-1]) == ("pending", "stopped")
    gone = lcm_does("delete", "life", "--yes", "--wait", "--timeout", patience)
    assert gone.endswith("worker/life deleted\n")
    assert lcm_does("wait", "life", "--for", "deleted") == ""


def test_a_worker_is_handed_over_to_cmls_own_tools(lcm: RunningLcm, monkeypatch: pytest.MonkeyPatch) -> None:
    lcm_does("create", "worker", "tools", "--template", "small", "--wait", "--timeout", "90s")
    address = lcm_does("open", "tools", "--print").strip()
    assert re.fullmatch(rf"https://127\.[0-9.]+:{lcm.ready.ports['cml']}", address)
    monkeypatch.setenv("CML_USERNAME", "admin")
    monkeypatch.setenv("CML_PASSWORD", simulated_password(seed=0))
    program = "import virl2_client as cml; print(cml.ClientLibrary(ssl_verify=False).system_info()['ready'])"
    shell = f'{lcm_does("env", "tools")}\n"$PYTHON" -W ignore -c "$PROGRAM"'
    environment = {**os.environ, "PYTHON": sys.executable, "PROGRAM": program}
    done = subprocess.run(["sh", "-c", shell], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr
    inventory = json.loads(lcm_does("inventory", "--list"))
    assert "tools" in inventory["cml"]["hosts"]
    assert "tools" in inventory["template_small"]["hosts"]
    variables = inventory["_meta"]["hostvars"]["tools"]
    assert variables == json.loads(lcm_does("inventory", "--host", "tools"))
    assert variables["cml_url"] == address
    assert lcm_does("ssh", "tools", "--print").startswith("ssh -p 1122 sysadmin@127.")
    lcm_does("delete", "tools", "--yes")


def test_any_request_of_the_api_is_sent_with_the_access_of_the_context(tmp_path: Path) -> None:
    assert json.loads(lcm_does("api", "GET", "/api/regions"))["items"]
    (tmp_path / "token.json").write_text('{"name": "by-hand", "role": "viewer"}')
    made = json.loads(lcm_does("api", "POST", "/api/tokens", "-d", f"@{tmp_path / 'token.json'}"))
    suite_canaries.know("token", made["token"])
    assert lcm_does("api", "DELETE", "/api/tokens/by-hand") == ""
    assert "write a method and a path" in lcm_refuses(2, "api", "get", "regions")
    lcm_refuses(3, "api", "GET", "/api/workers/nobody")


def test_a_session_is_run_and_ended_from_a_terminal(tmp_path: Path) -> None:
    topology = Path(__file__).parents[1] / "fixtures" / "topologies"
    (tmp_path / "lab.yaml").write_text(sorted(topology.glob("*.yaml"))[0].read_text())
    lab = ("-f", str(tmp_path / "lab.yaml"))
    assert "CAN RUN IT" in lcm_does("create", "definition", "terminal-lab", *lab, "--dry-run")
    made = lcm_does("create", "definition", "terminal-lab", *lab)
    assert made == "definition/terminal-lab@1.0.0 created\n"
    assert "cost per hour: +" in lcm_does("create", "session", "terminal-lab", "--dry-run")
    assert lcm_does("get", "sessions") == ""
    session = lcm_does("create", "session", "terminal-lab").split()[0]
    listed = lcm_does("get", "sessions", "-l", "definition=terminal-lab", "-o", "name")
    assert listed.split() == [session]
    short = session.partition("/")[2][:8]
    assert json.loads(lcm_does("get", "session", short, "-o", "json"))["definition_name"] == "terminal-lab"
    assert lcm_does("explain", "session", short)
    (row,) = lcm_does("get", "sessions", "-l", "definition=terminal-lab").splitlines()[1:]
    assert row.split()[:3] == [short, "terminal-lab@1.0.0", "admin"]
    ended = lcm_does("delete", "session", short, "--yes", "--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
    assert ended.endswith(f"{session} ended\n")


def test_what_is_refused_of_one_does_not_keep_the_others(lcm: RunningLcm) -> None:
    lcm_does("create", "worker", "one", "two", "--template", "micro")
    done = lcm_to_its_end("hold", "one", "two", "--until", "2020-01-01T00:00Z")
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.count("this hold would have ended") == 2
    lcm_does("delete", "-l", "template=micro", "--yes")


@pytest.mark.parametrize(
    ("code", "arguments", "says"),
    [
        (3, "get worker nobody", "'lcm get workers' shows them"),
        (3, "stop -l team=nobody", "no worker is chosen"),
        (2, "get nonsense", "choose one of workers"),
        (2, "stop", "choose with -l or --all"),
        (2, "stop a --all", "not both"),
        (2, "get workers -o xml", "choose one of table"),
        (2, "wait a --for 5", "choose one of ready"),
        (2, "delete region us-east-1 --yes", "cannot be deleted"),
        (2, "delete worker waits", "--yes"),
        (2, "hold waits --for soon", "not a duration"),
        (2, "get workers --nonsense", "No such option"),
        (1, "create worker waits --template micro", "choose another name"),
        (124, "wait waits --for licensed --timeout 1s", "not reached within 1 s"),
    ],
)
def test_an_exit_code_says_what_kind_of_error_it_is(
    code: int, arguments: str, says: str, waiting_worker: None
) -> None:
    if arguments.startswith("wait a "):
        arguments = arguments.replace("wait a", "wait waits")
    done = lcm_to_its_end(*arguments.split())
    assert (done.code, done.stdout) == (code, ""), done
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def waiting_worker(lcm: RunningLcm) -> Iterator[None]:
    """A worker without a license, named `waits`."""
    environment = {"LCM_URL": lcm.url, "LCM_TOKEN": lcm.ready.token}
    command = [sys.executable, "-m", "lcm", "create", "worker", "waits", "--template", "micro"]
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)
    yield
    command[3:] = ["delete", "waits", "--yes"]
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True)


def test_a_shell_completes_kinds_and_living_names(
    waiting_worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completions(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_LCM_COMPLETE": "complete_bash"}
        return subprocess.run(
            [Path(sys.executable).with_name("lcm")],
            env={**os.environ, **words},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

    assert completions("lcm get wor") == ["workers"]
    assert completions("lcm get workers wai") == ["waits"]
    assert completions("lcm stop wai") == ["waits"]
    assert "micro" in completions("lcm create worker x --template m")
    monkeypatch.setenv("LCM_URL", "http://127.0.0.1:9")
    assert completions("lcm stop wai") == []


def test_a_support_bundle_has_the_fleet_and_no_secret(
    lcm: RunningLcm, waiting_worker: None, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.zip"
    assert lcm_does("support-bundle", str(file)) == f"{file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert b'"waits"' in parts["workers.json"]
    assert {"version.txt", "health.json", "timelines.json", "explanations.json"} <= set(parts)
    workers = {worker["id"] for worker in json.loads(parts["workers.json"])}
    assert set(json.loads(parts["timelines.json"])) == workers, "a name may have been used before"
    everything = b"".join(parts.values())
    suite_canaries.search("the support bundle", everything)
    assert lcm.ready.token.encode() not in everything
    assert "exists" in lcm_refuses(1, "support-bundle", str(file))


def test_without_token_context_or_server_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LCM_TOKEN", "wrong")
    lcm_refuses(4, "get", "workers")
    monkeypatch.setenv("LCM_URL", "http://127.0.0.1:9")
    assert "no answer from http://127.0.0.1:9" in lcm_refuses(5, "get", "workers")
    monkeypatch.delenv("LCM_URL")
    assert "lcm login URL" in lcm_refuses(2, "get", "workers")


def login(lcm: RunningLcm, *options: str) -> Ended:
    """`lcm login` with the token on standard input, as a script gives it."""
    done = subprocess.run(
        [sys.executable, "-m", "lcm", "login", lcm.url, "--token-stdin", *options],
        input=lcm.ready.token + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_a_login_is_kept_for_its_owner_only_and_forgotten_on_logout(
    lcm: RunningLcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LCM_URL")
    done = login(lcm, "--name", "here")
    assert (done.code, done.stdout) == (0, ""), done.stderr
    assert "You are admin" in done.stderr
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
    assert lcm_does("whoami") == f"admin (admin) at {lcm.url}\n"
    assert lcm_does("context", "list").split()[-3:] == ["*", "here", lcm.url]
    lcm_does("logout")
    lcm_refuses(2, "get", "workers")
    config_path().write_text("contexts: [")
    assert "not YAML" in lcm_refuses(2, "context", "list")


def test_a_run_leaves_a_context_behind_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LCM_URL", "LCM_TOKEN"):
        monkeypatch.delenv(name)
    with running_lcm("--workers", "0", "--save-context", "local") as running:
        assert read_contexts(config_path()).current == "local"
        assert lcm_does("whoami") == f"admin (admin) at {running.url}\n"
    assert read_contexts(config_path()).contexts == {}


def test_a_question_loads_nothing_that_it_does_not_need() -> None:
    """Commands are to take less than 150 ms of CPU time; clocks are no test, imports are."""
    program = (
        "import sys; sys.argv = ['lcm', 'get', 'workers']\n"
        "from lcm.cli.app import main\n"
        "main()\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    heavy = {
        "aiohttp",
        "asyncio",
        "fastapi",
        "opentelemetry",
        "pydantic",
        "rich",
        "structlog",
        "uvloop",
        "yaml",
    }
    assert "lcm" in loaded
    assert loaded & heavy == set()


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        command = [str(Path(sys.executable).with_name("lcm")), "get", "workers"]
        done = subprocess.run(command, stdout=write, stderr=stderr, timeout=PATIENCE_SECONDS, check=False)
    os.close(write)
    assert (done.returncode, errors.read_text()) == (1, "")


def test_the_version_loads_no_command_at_all() -> None:
    program = (
        "import sys; sys.argv = ['lcm', '--version']\n"
        "from lcm.cli.entry import main\n"
        "main()\n"
        "print('typer' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"lcm \d+\.\d+\.\d+( \(commit [0-9a-f]+(-dirty)?\))?\nFalse\n", done.stdout)
