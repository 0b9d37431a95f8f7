"""The package, as `pip install` gets it: installed into empty environments, used in an empty directory."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from lcm import VERSION
from lcm.control_plane.api.dashboard import STATIC
from support.patience import PATIENCE_SECONDS
from support.ports import session_ports

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (STATIC / "index.html").is_file(), reason="the dashboard is not built"),
    pytest.mark.skipif(not UV.is_file(), reason="there is no uv: 'make setup' installs it"),
]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist of this tree."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", directory, cwd=ROOT)
    return directory


@pytest.fixture(scope="module")
def wheel_of_sdist(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built where there is nothing but the sdist."""
    directory = tmp_path_factory.mktemp("sdist")
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(directory)
    (tree,) = directory.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=tree)
    return next((tree / "dist").glob("*.whl"))


def wheel_in(built: Path) -> Path:
    return next(built.glob("*.whl"))


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [
            name for name in archive.namelist() if not name.endswith("/RECORD")
        ]  # which is a list of these
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def installed(wheel: Path, extra: str, directory: Path, python: str = sys.executable) -> Path:
    """Install into a new environment, in the locked versions; return its folder of commands."""
    environment = directory / "venv"
    run(UV, "venv", "--quiet", "--python", python, environment, cwd=directory)
    command: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", environment / "bin" / "python"]
    lock: list[str | Path] = ["--constraint", ROOT / "requirements.lock"]
    run(*command, *lock, f"lablet-cloud-manager{extra} @ {wheel.as_uri()}", cwd=directory)
    return environment / "bin"


def interpreter(version: str) -> str | None:
    """Return a Python of this version on this machine, where there is one."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}", path=f"{each}/bin") for each in versions.glob(f"{version}.*")]
    command = next(filter(None, found), None) or shutil.which(f"python{version}")
    works = command is not None and subprocess.run([command, "--version"], check=False).returncode == 0
    return command if works else None


@contextmanager
def up(lcm: Path, directory: Path) -> Iterator[dict[str, object]]:
    """`lcm up` in this directory, until the block is left; yields its ready line."""
    command: list[str | Path] = [lcm, "up", "--port", "0", "--speed", "20", "--workers", "0", "--json"]
    environment = {**os.environ, **session_ports()}
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def test_the_sdist_makes_the_same_wheel_as_the_tree(built: Path, wheel_of_sdist: Path) -> None:
    of_tree = contents(wheel_in(built))
    assert contents(wheel_of_sdist) == of_tree
    assert {"lcm/defaults/worker_templates.yaml", "lcm/control_plane/static/index.html"} <= set(of_tree)
    assert any(name.endswith("licenses/LICENSE") for name in of_tree)
    assert any(name.endswith("data/share/man/man1/lcm-get.1") for name in of_tree)


def test_an_installed_lcm_starts_in_an_empty_directory_and_serves_the_dashboard(
    built: Path, tmp_path: Path
) -> None:
    commands = installed(wheel_in(built), "[simulator]", tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with up(commands / "lcm", empty) as ready, urlopen(str(ready["url"])) as page:
        assert "<script" in page.read().decode()
    assert list(empty.iterdir()) == []


def test_without_extras_the_package_is_the_command_line_and_the_client(
    wheel_of_sdist: Path, tmp_path: Path
) -> None:
    commands = installed(wheel_of_sdist, "", tmp_path)
    assert run(commands / "lcm", "--version", cwd=tmp_path).stdout.startswith(f"lcm {VERSION}")
    run(commands / "python", "-c", "from lcm.client import AsyncLcm, Lcm", cwd=tmp_path)
    assert (commands.parent / "share" / "man" / "man1" / "lcm.1").is_file()
    for command, extra in (("up", "simulator"), ("control-plane", "server")):
        done = subprocess.run([commands / "lcm", command], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert f"pip install 'lablet-cloud-manager[{extra}]'" in line


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_the_command_line_and_the_client_work_on_every_python_that_is_here(
    built: Path, tmp_path: Path, version: str
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    commands = installed(wheel_in(built), "", tmp_path, python)
    assert run(commands / "lcm", "--version", cwd=tmp_path).stdout.startswith(f"lcm {VERSION}")
    run(commands / "python", "-c", "from lcm.client import AsyncLcm, Lcm", cwd=tmp_path)
    nowhere = {"XDG_CONFIG_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [commands / "lcm", "get", "workers"],
        env=nowhere,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "lcm login URL" in done.stderr
