"""What every command at a terminal shares: where LCM is, exit codes, one sentence for whatever goes wrong.

Data goes to standard output and nothing else does, so that scripts can read it; all else goes to standard
error.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from lcm.client import ClientError, Lcm

COMMAND_RETRY_SECONDS = 3.0
"""A person waits: a control plane that restarts is waited for, one that is gone is said."""


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    ACCESS = 4
    UNREACHABLE = 5
    UNCHECKED = 6
    TIMEOUT = 124


MEANING: Mapping[Exit, str] = {
    Exit.OK: "Done.",
    Exit.FAILED: "Refused or failed; what else was asked for is done.",
    Exit.USAGE: "The command line is wrong, or it is not known where LCM is.",
    Exit.NOT_FOUND: "There is no resource of this name.",
    Exit.ACCESS: "No valid token, its role does not allow this, or signing in failed.",
    Exit.UNREACHABLE: "No answer from LCM, or LCM has an outage: what was requested may still happen.",
    Exit.UNCHECKED: "Of `lcm doctor` and `lcm probe`: nothing failed, but something could not be checked.",
    Exit.TIMEOUT: "The goal of a wait was not reached in time.",
}

_CHOSEN: list[str] = []
"""The name given with `--context`, for all commands."""


def choose_context(name: str | None) -> None:
    _CHOSEN[:] = [name] if name is not None else []


def chosen_context() -> str | None:
    return _CHOSEN[0] if _CHOSEN else None


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """Print one sentence and exit."""
    note(f"{paint('lcm:', '1;31', sys.stderr)} {message}")
    sys.exit(code)


def note(line: str) -> None:
    """Print a line for a person."""
    print(line, file=sys.stderr, flush=True)


def paint(text: str, style: str, stream: object = sys.stdout) -> str:
    """Return the text in this style (as terminals number them) where it is shown to a person."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and is_styled(stream) else text


def is_styled(stream: object) -> bool:
    isatty = getattr(stream, "isatty", lambda: False)
    return bool(isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def connected(*, refused: Exit = Exit.FAILED) -> Iterator["Lcm"]:
    """Yield the client of the context in force; end with the exit code of what goes wrong.

    `refused` is that of whatever has no code of its own.
    """
    from lcm.client import Lcm

    with (
        plain_errors(refused=refused),
        Lcm(context=chosen_context(), retry_seconds=COMMAND_RETRY_SECONDS) as lcm,
    ):
        yield lcm


@contextmanager
def plain_errors(*, refused: Exit = Exit.FAILED) -> Iterator[None]:
    """End with one sentence and the exit code of what goes wrong."""
    from lcm.client import ClientError

    try:
        yield
    except ClientError as error:
        code = code_of(error)
        fail(plainly(error), refused if code is Exit.FAILED else code)


def plainly(error: "ClientError") -> str:
    """Return what went wrong in the words of commands, where the API names a route."""
    return re.sub(r"list them with GET /api/(\S+)", _listing, str(error))


def _listing(route: re.Match[str]) -> str:
    return f"'lcm get {route[1].rpartition('-')[2]}' shows them"


def code_of(error: "ClientError") -> Exit:
    """Return the exit code of an error."""
    from lcm.client import errors

    codes = (
        (errors.NotFound, Exit.NOT_FOUND),
        ((errors.AccessDenied, errors.SignInFailed), Exit.ACCESS),
        ((errors.Unreachable, errors.ServerFault), Exit.UNREACHABLE),
        (errors.WaitTimedOut, Exit.TIMEOUT),
        (errors.ContextError, Exit.USAGE),
    )
    return next((code for kinds, code in codes if isinstance(error, kinds)), Exit.FAILED)


def confirm(question: str, *, is_given: bool) -> None:
    """Go on only if a person says yes, or `--yes` was given."""
    if is_given:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Confirm it with --yes.", Exit.USAGE)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was changed")
