"""`lcm support-bundle`: what is needed to look into a problem, in one file without any secret."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lcm.cli.about import version_line
from lcm.cli.terminal import connected, fail, note

if TYPE_CHECKING:
    from lcm.client import Lcm

MAX_TIMELINES: Final = 50
"""Workers whose timelines are in it: those that changed last."""


def support_bundle(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("lcm-support.zip"),
) -> None:
    """Write what is needed to look into a problem to a file: the state of the fleet, its changes, its health.

    It has what a viewer sees: names, owners, addresses and reasons, and no tokens, passwords or topologies.
    """
    import zipfile

    import msgspec

    with connected() as lcm:
        parts = _parts(lcm)
    try:
        descriptor = os.open(
            file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
        )  # it is for its owner to pass on
        with (
            os.fdopen(descriptor, "wb") as output,
            zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            archive.writestr("version.txt", version_line() + "\n")
            for name, content in parts.items():
                archive.writestr(f"{name}.json", msgspec.json.format(msgspec.json.encode(content)))
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    print(file)
    note("Read it before you pass it on: it names workers, owners and addresses.")


def _parts(lcm: "Lcm") -> Mapping[str, Any]:
    workers = lcm.workers.list_all(include_terminated=True)
    newest = sorted(workers, key=lambda worker: worker.updated_at, reverse=True)[:MAX_TIMELINES]
    return {
        "who": lcm.who(),
        "health": _json(lcm, "/health"),
        "workers": workers,
        "timelines": {worker.id: lcm.workers.timeline(worker.id) for worker in newest},
        "explanations": {
            worker.id: lcm.workers.explain(worker.id)
            for worker in newest
            if str(worker.status) != "terminated"
        },
        "sessions": lcm.sessions.list_all(include_ended=True),
        "queue": lcm.sessions.queue(),
        "definitions": lcm.definitions.list_all(),
        "templates": lcm.templates.list_all(),
        "labs": lcm.labs.list_all(),
        "cost": lcm.cost(),
        "scaling": _json(lcm, "/api/scaling/audit?limit=500"),
        "license-debts": lcm.license_debts(),
    }


def _json(lcm: "Lcm", path: str) -> Any:
    """Return an answer; one that LCM refuses is part of the problem, and so of the file."""
    import msgspec

    from lcm.client import Refused

    try:
        return msgspec.json.decode(lcm.call("GET", path))
    except Refused as refused:
        return refused.problem
