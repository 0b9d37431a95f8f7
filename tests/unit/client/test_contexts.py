"""Where LCM is: which of several places wins, and what never mixes."""

import fcntl
import stat
from pathlib import Path

import pytest

from lcm.client import AsyncLcm, Lcm
from lcm.client.contexts import (
    Context,
    ContextFile,
    config_path,
    find_context,
    locked,
    read_contexts,
    write_contexts,
)
from lcm.client.errors import ContextError

HOME = Context(url="http://home", token="token-of-home")
LAB = Context(url="http://lab", token="token-of-lab")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user with two contexts, in a directory of its own."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    write_contexts(config_path(environment), ContextFile(current="home", contexts={"home": HOME, "lab": LAB}))
    return environment


def test_the_nearest_place_wins(environment: dict[str, str]) -> None:
    assert find_context(None, environment) == HOME
    Path(".lcmrc").write_text("context: lab\n")
    assert find_context(None, environment) == LAB
    environment["LCM_CONTEXT"] = "home"
    assert find_context(None, environment) == HOME
    environment |= {"LCM_URL": "http://here", "LCM_TOKEN": "t"}
    assert find_context(None, environment) == Context(url="http://here", token="t")
    assert find_context("lab", environment) == LAB


def test_a_file_of_the_directory_directs_no_token_elsewhere(environment: dict[str, str]) -> None:
    Path(".lcmrc").write_text("url: http://elsewhere\n")
    assert find_context(None, environment) == Context(url="http://elsewhere", token="")
    environment["LCM_TOKEN"] = "secret"
    assert find_context(None, environment).token == ""


def test_only_its_owner_reads_the_file(environment: dict[str, str]) -> None:
    path = config_path(environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_contexts(path, read_contexts(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_person_may_write_it_as_yaml(environment: dict[str, str]) -> None:
    config_path(environment).write_text("current: x\ncontexts:\n  x: {url: 'http://x', token: t}\n")
    assert find_context(None, environment) == Context(url="http://x", token="t")


@pytest.mark.parametrize(
    ("text", "says"),
    [("current: [", "not YAML"), ("contexts: 3", "Expected `object`"), ("colour: red", "colour")],
)
def test_a_file_with_a_mistake_is_named(environment: dict[str, str], text: str, says: str) -> None:
    path = config_path(environment)
    path.write_text(text)
    with pytest.raises(ContextError, match=says) as caught:
        find_context(None, environment)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("url", ["lcm.example.com", "localhost:8080", "ftp://x", "http://", "http://[::1"])
def test_what_is_no_address_of_an_lcm_says_so(url: str) -> None:
    for client in (Lcm, AsyncLcm):
        with pytest.raises(ContextError, match="is no address of an LCM"):
            client(url)


def test_a_file_without_an_authority_is_named(tmp_path: Path) -> None:
    for content in (None, "no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        with Lcm("https://127.0.0.1:9", ca_file=str(file)) as client, pytest.raises(ContextError) as caught:
            client.who()
        assert str(file) in str(caught.value)
        with pytest.raises(ContextError):
            AsyncLcm("https://127.0.0.1:9", ca_file=str(file))


def test_without_any_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ContextError, match="lcm login URL"):
        find_context(None, {"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(ContextError, match="no context 'x'"):
        find_context("x", {"XDG_CONFIG_HOME": str(tmp_path)})


def test_whoever_changes_the_contexts_holds_a_lock_that_a_network_file_system_has_too(
    environment: dict[str, str],
) -> None:
    """NFS takes a lock only of a file that is open for writing, which a directory cannot be."""
    path = config_path(environment)
    with locked(path), path.with_name("config.yaml.lock").open("r+") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert stat.S_IMODE(path.with_name("config.yaml.lock").stat().st_mode) == 0o600
    with locked(path):
        pass
