"""Commands that hand a worker over to CML's own tools: open, env, inventory, ssh."""

import os
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lcm.cli import completion
from lcm.cli.output import format_of, print_document
from lcm.cli.terminal import Exit, code_of, connected, fail, note

if TYPE_CHECKING:
    from lcm.client import Lcm
    from lcm.rest.schemas import CmlAccess

PANEL: Final = "CML's own tools"
Worker = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="Name or id of the worker.", autocompletion=completion.workers),
]
TIMEOUT_SECONDS: Final = 10.0
USER_NAMES: Final = ("CML_USERNAME", "VIRL2_USER", "VIRL_USERNAME", "TF_VAR_username")
PASSWORD_NAMES: Final = ("CML_PASSWORD", "VIRL2_PASS", "VIRL_PASSWORD", "TF_VAR_password")


def open_cml(
    worker: Worker,
    lab: Annotated[str | None, typer.Argument(metavar="[LAB]", help="Title or id of a lab on it.")] = None,
    is_printed: Annotated[bool, typer.Option("--print", help="Print the address, and open nothing.")] = False,
) -> None:
    """Open the CML of a worker, or one of its labs, in a browser."""
    with connected() as lcm:
        address = lcm.workers.cml_access(worker).url
        if lab is not None:
            address = f"{address}/lab/{_lab_id(lcm, worker, lab)}"
    if is_printed:
        print(address)
        return
    import webbrowser

    note(address)
    if not webbrowser.open(address):
        fail("no browser can be opened here; open the address above yourself")


def _lab_id(lcm: "Lcm", worker: str, lab: str) -> str:
    found = [each.lab_id for each in lcm.workers.labs(worker).items if lab in (each.lab_id, each.title)]
    if len(found) != 1:
        fail(
            f"{len(found)} labs on {worker} are named {lab!r}; 'lcm get labs -l worker={worker}'",
            Exit.NOT_FOUND,
        )
    return str(found[0])


def env(worker: Worker) -> None:
    """Print variables for virl2_client, virlutils, Ansible and Terraform: eval "$(lcm env WORKER)".

    LCM shows no password, and does not know the user name of the fleet. Set CML_USERNAME and CML_PASSWORD
    before: they are passed on under all the names.
    """
    with connected() as lcm:
        access = lcm.workers.cml_access(worker)
    variables = variables_of(access, os.environ)
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    missing = [names[0] for names in (USER_NAMES, PASSWORD_NAMES) if names[0] not in variables]
    if missing:
        note(f"Set {' and '.join(missing)} of this CML, and repeat this.")


def variables_of(access: "CmlAccess", environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which CML's tools find this server."""
    server = access.url.removeprefix("https://")
    variables = {
        "VIRL2_URL": access.url,
        "VIRL_HOST": server,
        "CML_HOST": server,
        "TF_VAR_address": access.url,
    }
    for names, known in ((USER_NAMES, access.username), (PASSWORD_NAMES, None)):
        value = known or next((environment[name] for name in names if environment.get(name)), None)
        if value is not None:
            variables |= dict.fromkeys(names, value)
    return variables | _verification(access)


def _verification(access: "CmlAccess") -> dict[str, str]:
    """Return how tools are to check the certificate, which is the pinned one or this ends with an error."""
    if access.certificate_sha256 is None:
        return {}
    from lcm.client import ClientError
    from lcm.client.cml import pinned_certificate

    try:
        pem = pinned_certificate(access)
    except ClientError as error:
        fail(str(error), code_of(error))
    if not _names_its_address(access, pem):
        note("Its certificate, which is the pinned one, does not name its address, as those that CML makes:")
        note("tools cannot verify it; switch that off, as with ClientLibrary(ssl_verify=False).")
        return {}
    from lcm.client.contexts import config_path

    path = config_path().with_name("certificates") / f"{access.worker_id}.pem"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(pem)
    return {"CA_BUNDLE": str(path), "CML_VERIFY_CERT": str(path)}


def _names_its_address(access: "CmlAccess", pem: str) -> bool:
    """Return whether a client that trusts this certificate alone can verify the server."""
    trust = ssl.create_default_context(cadata=pem)
    try:
        with socket.create_connection((access.host, access.port), TIMEOUT_SECONDS) as plain:
            trust.wrap_socket(plain, server_hostname=access.host).close()
    except ssl.SSLCertVerificationError:
        return False
    except OSError as error:
        fail(f"no answer from {access.url}: {error}", Exit.UNREACHABLE)
    return True


def inventory(
    list_all: Annotated[bool, typer.Option("--list", help="All workers whose CML answers.")] = False,
    host: Annotated[str | None, typer.Option(metavar="NAME", help="The variables of one.")] = None,
) -> None:
    """Print the fleet as a dynamic inventory of Ansible: groups by template, region, status and tag."""
    if list_all == (host is not None):
        fail("an inventory is asked for with --list or with --host NAME", Exit.USAGE)
    with connected() as lcm:
        if host is not None:
            print_document(_variables(lcm, host), format_of("json"))
            return
        ready = [worker for worker in lcm.workers.list_all() if worker.cml_ready]
        groups: dict[str, Any] = {
            "_meta": {"hostvars": {each.name: _variables(lcm, each.id) for each in ready}}
        }
        for worker in ready:
            for group in ("cml", *_groups_of(worker)):
                groups.setdefault(group, {"hosts": []})["hosts"].append(worker.name)
        print_document(groups, format_of("json"))


def _groups_of(worker: Any) -> list[str]:
    labels = {"template": worker.template_name, "region": worker.aws_region, **worker.tags}
    names = (f"{name}_{value}" for name, value in labels.items())
    return ["".join(letter if letter.isalnum() else "_" for letter in name) for name in names]


def _variables(lcm: "Lcm", worker: str) -> dict[str, Any]:
    access = lcm.workers.cml_access(worker)
    host = access.url.removeprefix("https://")
    return {
        "ansible_host": access.host,
        "cml_host": host,
        "cml_username": access.username,
        "cml_url": access.url,
    }


def ssh(
    worker: Worker,
    user: Annotated[str, typer.Option(help="The user on the host.")] = "sysadmin",
    port: Annotated[str, typer.Option(help="The port; CML's own console server has 22.")] = "1122",
    is_printed: Annotated[bool, typer.Option("--print", help="Print the command, and run nothing.")] = False,
) -> None:
    """Open a shell on the host of a worker."""
    with connected() as lcm:
        found = lcm.workers.get(worker)
    host = found.public_ip or found.private_ip
    if host is None:
        fail(f"worker {found.name}, which is {found.status}, has no address")
    arguments = ["-p", port, f"{user}@{host}"]
    if is_printed:
        print(shlex.join(["ssh", *arguments]))
        return
    if (program := shutil.which("ssh")) is None:
        fail("there is no ssh here")
    sys.exit(subprocess.run([program, *arguments], check=False).returncode)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "open": open_cml,
    "env": env,
    "inventory": inventory,
    "ssh": ssh,
}
