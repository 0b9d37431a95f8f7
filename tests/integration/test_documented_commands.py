"""The command lines of the documentation, run page by page beside one LCM with a simulated cloud."""

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from lcm.cli.app import app
from lcm.client import Lcm
from lcm.core.blocking_clock import BlockingClock
from support.documented import PAGES, ROOT, command_lines, words_of
from support.patience import PATIENCE_SECONDS
from support.processes import RunningLcm, running_lcm, running_simulator

STARTS_LCM: Final = "it starts LCM, as every test here does in its own way"
ELSEWHERE: Final = {
    "up": STARTS_LCM,
    "simulate": STARTS_LCM,
    "control-plane": STARTS_LCM,
    "worker-controller": STARTS_LCM,
    "resource-scheduler": STARTS_LCM,
    "lablet-controller": STARTS_LCM,
    "doctor": "it needs an AWS account; tests/integration/test_doctor.py gives it a simulated one",
    "probe": "it needs a CML server of the reader; tests/integration/test_probe.py has one",
    "store copy": "it needs a MongoDB; tests/contract/test_store.py has one",
    "login https://127.0.0.1:8080": "it needs an LCM that serves TLS",
    "login https://lcm.example --device": "it needs an identity provider; test_oidc.py has one",
    "ssh": "it needs an SSH server",
    "open": "it needs a browser",
    "--install-completion": "it writes to the files of the reader's shell",
    "events -f": "it goes on until Ctrl-C",
    "get workers -w": "it goes on until Ctrl-C",
    "adopt": "it needs servers or labs that LCM found; tests/e2e has both",
    "delete lab": "it needs a lab that LCM did not make; tests/integration/test_lab_discovery.py has one",
}
"""What is not run here, and why."""
REFUSED: Final = {
    "retry exam-1": "it has not failed",
    "diff -f fleet #": "it differs",
}
"""What ends with exit code 1, and why."""
FIRST: Final = "schedule-labs"
"""Its lines define the lab of which other pages speak."""
EXAMPLES: Final = ("3f2a91c0", "$ID", "Routing, Tuesday", "routing/")


RUN: Final = sorted(PAGES, key=lambda page: page.stem != FIRST)


def all_lines_of(page: Path) -> list[str]:
    return [" ".join(line.replace("\\\n", " ").split()) for line in command_lines(page)]


def lines_of(page: Path) -> list[str]:
    """The lines of a page that are run here."""
    return [line for line in all_lines_of(page) if not begins(line, ELSEWHERE)]


def begins(line: str, exceptions: Iterable[str]) -> bool:
    return any(f"{line} ".startswith(f"{each} ") for each in exceptions)


@dataclass(frozen=True)
class Reader:
    """What a reader has before the first line."""

    lcm: RunningLcm
    license_token: str
    password: str
    """Of the CML servers."""

    def types(self, line: str) -> str:
        """Return what is asked for: a token."""
        return self.license_token if line.startswith("license ") else self.lcm.ready.token


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One LCM for all pages, with a worker that has room for every lab of theirs."""
    data_dir = str(tmp_path_factory.mktemp("data"))
    with (
        running_simulator() as cloud,
        running_lcm(
            *("--workers", "0", "--data-dir", data_dir, "--aws-endpoint", cloud.info.aws_endpoint)
        ) as running,
    ):
        with Lcm(running.url, running.ready.token) as client:
            client.set_fleet_license(cloud.info.license_token)
            client.workers.create("ccna-morning", "metal", tags={"team": "ccna"}, licensed=True)
            client.workers.wait("ccna-morning", "licensed", timeout_seconds=PATIENCE_SECONDS)
        yield Reader(running, cloud.info.license_token, cloud.info.cml_password)


@pytest.fixture
def folder(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a reader, with the files that the lines name, and access to LCM."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LCM_DATA_DIR", reader.lcm.ready.data_dir)
    monkeypatch.setenv("CML_USERNAME", "admin")
    monkeypatch.chdir(tmp_path)
    topology = ROOT / "docs" / "tutorial" / "first-class.yaml"
    for name in ("docs/tutorial/first-class.yaml", "routing.yaml", "fleet/branch.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(topology, tmp_path / name)
    (tmp_path / "login.json").write_text(json.dumps({"username": "admin", "password": reader.password}))
    (tmp_path / "license.json").write_text(json.dumps({"token": reader.license_token}))
    (tmp_path / "lcm.yaml").write_text("")
    declared = (ROOT / "docs" / "how-to" / "declare-a-fleet.md").read_text()
    fleet = declared.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "fleet" / "ccna.yaml").write_text(fleet.replace("2030-01-15", in_a_week()))
    return tmp_path


@pytest.mark.parametrize("page", [page for page in RUN if lines_of(page)], ids=lambda page: page.stem)
def test_the_command_lines_of_a_page_can_be_run_one_after_the_other(
    page: Path, reader: Reader, folder: Path
) -> None:
    lines = lines_of(page)
    lcm = reader.lcm
    with Lcm(lcm.url, lcm.ready.token) as client:
        remember(lcm)
        if page.stem != FIRST and any(example in line for line in lines for example in EXAMPLES):
            prepare(client)
        for line in lines:
            words = words_of(filled_in(line, lcm, client))
            done = CliRunner().invoke(app, words, input=f"{reader.types(line)}\n")
            expected = 1 if begins(line, REFUSED) else 0
            assert done.exit_code == expected, f"lcm {line}: {done.output} {done.exception!r}"


def test_every_exception_is_a_line_of_the_documentation() -> None:
    lines = [line for page in PAGES for line in all_lines_of(page)]
    for beginning in (*ELSEWHERE, *REFUSED):
        assert any(line.startswith(beginning) for line in lines), beginning


def remember(lcm: RunningLcm) -> None:
    """Log in, as a reader has done."""
    done = CliRunner().invoke(app, ["login", lcm.url, "--name", "local"], input=f"{lcm.ready.token}\n")
    assert done.exit_code == 0, done.output


def prepare(client: Lcm) -> None:
    """Give the fleet the lab, the session and the class of which most pages speak."""
    if not any(each.name == "routing" for each in client.definitions.list_all()):
        client.definitions.create("routing", Path("routing.yaml").read_text())
    sessions = client.sessions.list_all()
    if not any(each.batch is not None and each.batch.name == "Routing, Tuesday" for each in sessions):
        client.classes.create("Routing, Tuesday", "routing", 1)
    session = client.sessions.create("routing").session
    client.sessions.wait(session.id, "ready", timeout_seconds=PATIENCE_SECONDS)


def filled_in(line: str, lcm: RunningLcm, client: Lcm) -> str:
    """Return the line with what the documentation can only show an example of."""
    filled = line.replace("https://lcm.example.com", lcm.url).replace("2026-12-01", in_a_week())
    if "3f2a91c0" in filled or "$ID" in filled:
        newest = max(client.sessions.list_all(), key=lambda session: session.created_at)
        filled = filled.replace("3f2a91c0", newest.id[:8]).replace("$ID", newest.id)
    return filled


def in_a_week() -> str:
    return (BlockingClock().now() + timedelta(days=7)).date().isoformat()
