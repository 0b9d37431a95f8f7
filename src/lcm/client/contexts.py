"""Where LCM is and who is calling: named contexts in a file of the user, a file of the directory, variables.

The first of these that says something wins; an address and its token always come from the same place, so that
no file of a directory can direct a token elsewhere:

1. `LCM_URL`, with `LCM_TOKEN`
2. the name of a context: `--context`, then `LCM_CONTEXT`
3. `.lcmrc` in the current directory: `context: NAME`, or `url:` and `token:`
4. the current context of `~/.config/lcm/config.yaml`
"""

import fcntl
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from lcm.client.errors import ContextError

T = TypeVar("T")

LOCAL_FILE: Final = Path(".lcmrc")
NONE_SET: Final = "it is not known where LCM is: 'lcm login URL', or set LCM_URL and LCM_TOKEN"


class Renewal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new access token is got with, where a person signed in at the identity provider."""

    id: str
    """Of this sign-in, whatever its context is called."""
    token_endpoint: str
    client_id: str
    refresh_token: str
    expires_at: datetime
    """Of the access token that the context has now."""

    def __repr__(self) -> str:
        return f"Renewal({self.token_endpoint!r}, …)"


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One LCM, and how to reach it."""

    url: str
    token: str = ""
    ca_file: str | None = None
    """PEM file of the authority that its certificate is checked against; None: those of the system."""
    renewal: Renewal | None = None
    """None: the token is used for as long as it is valid."""

    def __repr__(self) -> str:
        return f"Context({self.url!r}, …)"


class ContextFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All contexts of a user."""

    current: str | None = None
    contexts: dict[str, Context] = {}


class _LocalFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    context: str | None = None
    url: str | None = None
    token: str = ""
    ca_file: str | None = None


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the user's contexts."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "lcm" / "config.yaml"


def find_context(name: str | None = None, environment: Mapping[str, str] = os.environ) -> Context:
    """Return the context in force. Raises ContextError."""
    if name is None and environment.get("LCM_URL"):
        return Context(
            url=environment["LCM_URL"],
            token=environment.get("LCM_TOKEN", ""),
            ca_file=environment.get("LCM_CA_FILE"),
        )
    name = name or environment.get("LCM_CONTEXT")
    if name is None and LOCAL_FILE.is_file():
        local = _read(LOCAL_FILE, _LocalFile)
        if local.url is not None:
            return Context(url=local.url, token=local.token, ca_file=local.ca_file)
        name = local.context
    known = read_contexts(config_path(environment))
    name = name or known.current
    if name is None:
        raise ContextError(NONE_SET)
    if name not in known.contexts:
        names = ", ".join(sorted(known.contexts)) or "there is none"
        raise ContextError(f"there is no context {name!r}; 'lcm context list' shows: {names}")
    return known.contexts[name]


def address_of(url: str) -> SplitResult:
    """Return the parts of the address of an LCM. Raises ContextError."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass  # brackets or a port that are none
    raise ContextError(f"{url!r} is no address of an LCM; write https://HOST or http://HOST:PORT")


def trust_in(ca_file: str | None) -> ssl.SSLContext:
    """Return how a certificate is checked; None: by the authorities of the system. Raises ContextError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ContextError(f"{ca_file} has no certificate of an authority: {error.strerror}") from None


def read_contexts(path: Path) -> ContextFile:
    """Return the contexts in a file, none if there is no file. Raises ContextError."""
    return _read(path, ContextFile) if path.is_file() else ContextFile()


def write_contexts(path: Path, contexts: ContextFile) -> None:
    """Replace the file at once, readable by its owner only."""
    text = msgspec.json.format(msgspec.json.encode(contexts)) + b"\n"  # JSON is YAML, and quicker to read
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    new.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other process read the file in order to change it, for as long as the block.

    The lock is of a file of its own: this one is replaced, and NFS locks only what is open for writing.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remember_context(path: Path, name: str, context: Context, *, is_current: bool = True) -> bool:
    """Add or replace a context; return whether it is the current one, as it is if there is no other."""
    with locked(path):
        known = read_contexts(path)
        known.contexts[name] = context
        if is_current or known.current not in known.contexts:
            known.current = name
        write_contexts(path, known)
    return known.current == name


def forget_context(path: Path, name: str) -> bool:
    """Remove a context; return whether there was one."""
    with locked(path):
        known = read_contexts(path)
        if known.contexts.pop(name, None) is None:
            return False
        if known.current == name:
            known.current = None
        write_contexts(path, known)
    return True


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(_decoded(path, path.read_bytes()), kind)
    except OSError as error:
        raise ContextError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise ContextError(f"{path}: {error}") from None


def _decoded(path: Path, content: bytes) -> object:
    """Return the content; that of a person may be any YAML."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(content)
    import yaml

    try:
        return yaml.safe_load(content) or {}
    except yaml.YAMLError as error:
        raise ContextError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
