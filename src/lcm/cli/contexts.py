"""`lcm login`, `lcm logout` and `lcm context`: which LCM the commands are about."""

import getpass
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from lcm.cli.output import Column, moment, one_line, print_table, span
from lcm.cli.terminal import Exit, connected, fail, note, plain_errors
from lcm.core.blocking_clock import BlockingClock

if TYPE_CHECKING:
    from lcm.client import Context

PANEL: Final = "Connect"
context = typer.Typer(no_args_is_help=True, help="The LCMs that you have logged in to.")


def login(
    url: Annotated[str, typer.Argument(help="The address of LCM, for example https://lcm.example.com.")],
    name: Annotated[str | None, typer.Option(help="Name of the context. Default: the host.")] = None,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from standard input.")
    ] = False,
    device: Annotated[
        bool,
        typer.Option("--device", help="Sign in at the identity provider: in any browser, with a code."),
    ] = False,
    ca_file: Annotated[
        str | None, typer.Option(help="PEM file of the authority that its certificate is checked against.")
    ] = None,
) -> None:
    """Keep address and access token of an LCM, and make it the current one."""
    from lcm.client import Context, Lcm
    from lcm.client.contexts import address_of, config_path, remember_context

    if device and token_stdin:
        fail("choose one of --device and --token-stdin", Exit.USAGE)
    own_authority = str(Path(ca_file).absolute()) if ca_file is not None else None
    with plain_errors():
        name = name or address_of(url).netloc.rpartition("@")[2]
        if device:
            found = _signed_in(url, own_authority)
        else:
            is_asked = sys.stdin.isatty() and not token_stdin
            token = (getpass.getpass("Access token: ") if is_asked else sys.stdin.readline()).strip()
            found = Context(url=url, token=token, ca_file=own_authority)
        with Lcm(url, found.token, ca_file=own_authority, retry_seconds=0.0) as lcm:
            who = lcm.who()
        remember_context(config_path(), name, found)
    note(f"You are {who.actor} ({who.role}) at {url}; the context is {name!r}.")


def _signed_in(url: str, ca_file: str | None) -> "Context":
    """Let a person sign in at the identity provider of this LCM."""
    from lcm.client import Lcm, SignInFailed
    from lcm.client.device import DeviceSignIn
    from lcm.client.oauth import over_http

    with Lcm(url, ca_file=ca_file, retry_seconds=0.0) as lcm:
        client = lcm.sign_in_ways().device
    if client is None:
        raise SignInFailed(
            f"{url} lets no person sign in with a code: its admin has to set OIDC_DEVICE_CLIENT_ID."
            " Log in with an access token, without --device"
        )
    sign_in = DeviceSignIn(client, over_http, BlockingClock())
    code = sign_in.begin()
    note(one_line(f"Open {code.verification_uri} in any browser and enter the code {code.user_code}"))
    if code.verification_uri_complete:
        note(one_line(f"or open {code.verification_uri_complete}"))
    note(f"The code is valid for {span(code.expires_in)}. Waiting for you to sign in there …")
    tokens = sign_in.finish(code)
    found = sign_in.context(url, ca_file, tokens)
    if found.renewal is None:
        note(
            f"The identity provider gives no refresh token: this login ends in {span(tokens.expires_in)}."
            " An admin can ask it for one with OIDC_DEVICE_SCOPE."
        )
    return found


def logout(
    name: Annotated[str | None, typer.Argument(help="Which context. Default: the current one.")] = None,
) -> None:
    """Forget an LCM and the token for it. The token stays valid; 'lcm delete token' revokes it.

    A sign-in at an identity provider ends there, not here.
    """
    from lcm.client.contexts import config_path, forget_context, read_contexts

    with plain_errors():
        name = name or read_contexts(config_path()).current
        is_forgotten = name is not None and forget_context(config_path(), name)
    if not is_forgotten:
        fail(f"there is no context {name!r}", Exit.NOT_FOUND)
    note(f"The context {name!r} is forgotten.")


@context.command("list")
def list_contexts() -> None:
    """List the contexts; the current one has a star."""
    from lcm.client.contexts import config_path, read_contexts

    with plain_errors():
        known = read_contexts(config_path())
    columns = (
        Column("", lambda row: "*" if row[0] == known.current else ""),
        Column("NAME", lambda row: row[0]),
        Column("URL", lambda row: row[1].url),
    )
    if known.contexts:
        print_table(sorted(known.contexts.items()), columns)


@context.command("use")
def use_context(name: Annotated[str, typer.Argument(help="One of 'lcm context list'.")]) -> None:
    """Make a context the current one."""
    from lcm.client.contexts import config_path, read_contexts, write_contexts

    with plain_errors():
        known = read_contexts(config_path())
    if name not in known.contexts:
        fail(f"there is no context {name!r}; 'lcm context list' shows them", Exit.NOT_FOUND)
    known.current = name
    write_contexts(config_path(), known)


def whoami() -> None:
    """Say who you are to the current LCM."""
    with connected() as lcm:
        who = lcm.who()
        print(f"{who.actor} ({who.role}) at {lcm.url}")


def browsers(
    all_people: Annotated[bool, typer.Option("--all-people", help="Of all people; only for admins.")] = False,
    sign_out: Annotated[bool, typer.Option("--sign-out", help="Sign all of yours out.")] = False,
) -> None:
    """List the browsers that are signed in as you, or sign them out."""
    with connected() as lcm:
        if sign_out:
            lcm.sign_out_everywhere()
            note("You are signed out everywhere. Tokens stay valid.")
            return
        columns = (
            Column("ID", lambda each: each.id),
            Column("WHO", lambda each: each.actor),
            Column("ROLE", lambda each: each.role),
            Column("SINCE", lambda each: moment(each.created_at)),
            Column("LAST USED", lambda each: moment(each.last_used_at)),
            Column("EXPIRES", lambda each: moment(each.expires_at)),
        )
        print_table(lcm.browsers(all_people=all_people), columns)


@contextmanager
def kept_context(name: str, url: str, token: str, ca_file: str | None = None) -> Iterator[None]:
    """Keep a context for as long as the block: the LCM that is run in it ends with it."""
    from lcm.client import Context
    from lcm.client.contexts import config_path, forget_context, read_contexts, remember_context

    parts = urlsplit(url)
    own = Context(url=f"{parts.scheme}://{parts.netloc}", token=token, ca_file=ca_file)
    is_current = remember_context(config_path(), name, own, is_current=False)
    note(f"In another terminal: lcm {'' if is_current else f'--context {name} '}get workers")
    try:
        yield
    finally:
        if read_contexts(config_path()).contexts.get(name) == own:
            forget_context(config_path(), name)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    command.__name__: command for command in (login, logout, whoami, browsers)
}
