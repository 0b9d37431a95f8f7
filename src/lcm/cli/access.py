"""`lcm token`, `lcm link` and `lcm secrets`: requests to the running control plane, with its admin key."""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

TIMEOUT_SECONDS = 10.0

tokens = typer.Typer(no_args_is_help=True, help="Access tokens for people and scripts.")
secrets = typer.Typer(no_args_is_help=True, help="The key that seals stored secrets.")

DataDir = Annotated[Path, typer.Option(envvar="LCM_DATA_DIR", help="The data directory of the running LCM.")]
Url = Annotated[
    str | None, typer.Option(help="URL of its control plane. Default: read from the data directory.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_DURATION_SECONDS = {"m": 60, "h": 3600, "d": 86400}


@tokens.command("create")
def create(
    name: Annotated[str, typer.Option(help="The user or script it is for; shown in timelines.")],
    role: Annotated[Literal["viewer", "operator", "admin"], typer.Option(help="What it may do.")],
    expires: Annotated[
        str | None, typer.Option(help="Lifetime, for example 45m, 12h or 90d. Default: unlimited.")
    ] = None,
    data_dir: DataDir = Path("lcm-data"),
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    body: dict[str, Any] = {"name": name, "role": role}
    if expires is not None:
        body["expires_in_seconds"] = _seconds(expires)
    created = _ask(data_dir, url, "POST", "/api/tokens", body)
    if as_json:
        print(json.dumps(created))
        return
    from rich.console import Console

    print(created["token"])
    Console(stderr=True).print("Keep it now: it is not shown again.", style="dim")


@tokens.command("list")
def list_all(data_dir: DataDir = Path("lcm-data"), url: Url = None, as_json: AsJson = False) -> None:
    """List the tokens, without their secret values."""
    items = _ask(data_dir, url, "GET", "/api/tokens")["items"]
    if as_json:
        print(json.dumps(items))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "name", "role", "created by", "expires", "last used", box=None)
    for item in items:
        table.add_row(
            item["id"],
            item["name"],
            item["role"],
            item["created_by"],
            _short(item["expires_at"]),
            _short(item["last_used_at"]),
        )
    Console().print(table)


@tokens.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(help="Its name or id, as 'lcm token list' shows them.")],
    data_dir: DataDir = Path("lcm-data"),
    url: Url = None,
) -> None:
    """Revoke a token; sessions and streams opened with it end within seconds."""
    from rich.console import Console

    items = _ask(data_dir, url, "GET", "/api/tokens")["items"]
    found = [item for item in items if token in (item["id"], item["name"])]
    if not found:
        _fail(f"there is no token {token!r}; 'lcm token list' shows them")
    _ask(data_dir, url, "DELETE", f"/api/tokens/{found[0]['id']}")
    Console(stderr=True).print(f"Token {found[0]['name']!r} is revoked.")


def link(data_dir: DataDir = Path("lcm-data"), url: Url = None) -> None:
    """Print a link that signs a browser in as admin: once, within ten minutes."""
    made = _ask(data_dir, url, "POST", "/api/session/links")
    print(f"{_address(data_dir, url)}/?code={made['code']}")


@secrets.command("rotate")
def rotate(data_dir: DataDir = Path("lcm-data"), url: Url = None) -> None:
    """Seal every stored secret again with a new key, and destroy the old key."""
    from rich.console import Console

    rotated = _ask(data_dir, url, "POST", "/api/secret-keys/rotate")
    Console(stderr=True).print(
        f"Key {rotated['key_id']} seals now; {rotated['resealed']} secrets were sealed again."
    )


def _ask(data_dir: Path, url: str | None, method: str, path: str, body: object = None) -> Any:
    """The control plane's answer; a refusal is printed and ends the program."""
    import asyncio

    try:
        key = json.loads((data_dir / "keys.json").read_text())["admin"]
        address = _address(data_dir, url)
    except (OSError, ValueError, KeyError):
        _fail(f"{data_dir} is not the data directory of a running LCM; name it with --data-dir")
    headers = {"Authorization": f"Bearer {key}"}
    status, answer = asyncio.run(_send(address, method, path, headers, body, _ca_file(data_dir)))
    if status >= 400:
        _fail(answer["detail"])
    return answer


def _address(data_dir: Path, url: str | None) -> str:
    return (url or (data_dir / "control-plane.url").read_text().strip()).rstrip("/")


def _ca_file(data_dir: Path) -> Path | None:
    """The authority to check the certificate against: LCM_CA_FILE, or that of `lcm up --tls`."""
    given, own = os.environ.get("LCM_CA_FILE"), data_dir / "tls" / "ca.pem"
    if given:
        return Path(given)
    return own if own.exists() else None


async def _send(
    url: str, method: str, path: str, headers: Mapping[str, str], body: object, ca_file: Path | None
) -> tuple[int, Any]:
    import ssl

    import aiohttp

    from lcm.core.timeouts import timeout

    try:
        async with (
            timeout(TIMEOUT_SECONDS),
            aiohttp.ClientSession(headers=headers) as session,
            session.request(
                method,
                url.rstrip("/") + path,
                json=body,
                ssl=ssl.create_default_context(cafile=ca_file) if ca_file else True,
            ) as response,
        ):
            text = await response.read()
            return response.status, json.loads(text) if text else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        _fail(f"no answer from {url}: {str(error) or 'timed out'}; is LCM running?")


def _seconds(duration: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([mhd])", duration)
    if match is None:
        _fail(f"{duration!r} is not a duration; write 45m, 12h or 90d")
    return int(match[1]) * _DURATION_SECONDS[match[2]]


def _short(moment: str | None) -> str:
    return moment[:16].replace("T", " ") if moment else "never"


def _fail(message: str) -> NoReturn:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text("lcm: ", "bold red") + Text(message, "default"), soft_wrap=True)
    sys.exit(1)
