"""Commands that change something: create, start, stop, drain, hold, release, adopt, license, and so on."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lcm.cli import completion
from lcm.cli.kinds import LAB, NOW, SESSION, WORKER, Kind, kind_of, select
from lcm.cli.output import Column, moment, print_facts, print_table, span, usd
from lcm.cli.reading import CLOCK, Every, Labels, Named
from lcm.cli.terminal import Exit, code_of, confirm, connected, fail, note, paint, plainly

if TYPE_CHECKING:
    from lcm.client import Lcm

PANEL: Final = "Act"
Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done.")]
Timeout = Annotated[
    str, typer.Option(metavar="DURATION", help="How long to wait at most, for example 90s, 15m or 1h.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would happen, and what it would cost.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Optional = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KIND] [NAME…]",
        help="Names; without a kind of workers. Or KIND/NAME.",
        autocompletion=completion.names,
    ),
]
Act = Callable[["Lcm", Kind, Any], Any]

create = typer.Typer(no_args_is_help=True, help="Create a worker, definition, session, class or token.")


def start(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Start workers, or labs."""
    _act(
        "start", names, labels, every, _start, dry_run=dry_run, goal="ready" if wait else None, within=timeout
    )


def stop(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Stop workers, whose disks are kept, or labs."""
    _act(
        "stop", names, labels, every, _stop, dry_run=dry_run, goal="stopped" if wait else None, within=timeout
    )


def drain(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take new sessions again.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Give workers no new sessions, and stop them when the present ones are over."""
    _act(
        "cancel-drain" if cancel else "drain",
        names,
        labels,
        every,
        _of_workers(
            lambda lcm, worker: (lcm.workers.cancel_drain if cancel else lcm.workers.drain)(worker.id)
        ),
        dry_run=dry_run,
    )


def hold(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="For example 90m, 4h or 2d.")
    ] = "4h",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Instead: 2026-01-31T18:00Z.")] = None,
    reason: Annotated[str, typer.Option(help="Shown with the worker.")] = "",
) -> None:
    """Keep workers running for some time, idle or not."""
    end = _moment(until) if until is not None else NOW + duration_of(duration)
    action = _of_workers(lambda lcm, worker: lcm.workers.hold(worker.id, end, reason))
    _act("hold", names, labels, every, action, done=f"is held until {moment(end)}")


def release(names: Optional = None, labels: Labels = None, every: Every = False) -> None:
    """Release the hold of workers."""
    _act("release", names, labels, every, _of_workers(lambda lcm, worker: lcm.workers.release(worker.id)))


def adopt(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the workers.")] = False,
    definition: Annotated[
        str | None,
        typer.Option(help="The definition that the labs are of: what it needs is kept free for each."),
    ] = None,
) -> None:
    """Keep labs that no session owns, or trust workers that LCM found and did not launch.

    LCM never removes adopted labs by itself. The CML of an adopted worker gets LCM's login: compare what is
    shown with the instance first, above all the certificate.
    """
    with connected() as lcm:
        chosen = select(lcm, names or [], labels or [], every=every)
        found = [(kind, item) for kind, item in chosen if kind is WORKER and not item.is_trusted]
        others = [(kind, item) for kind, item in chosen if kind is not WORKER]
        if found:
            print_table([item for _, item in found], _FOUND)
            if dry_run:
                return
            confirm(f"Give LCM's login to the CML of {_counted(found)}?", is_given=yes)
        elif not others:
            note("All of them are trusted.")
        trust = _of_workers(lambda lcm, worker: lcm.workers.adopt(worker.id, worker.cml_certificate_sha256))
        _, first = _request_each(lcm, "adopt", found, trust, "is adopted")
        _, second = _request_each(lcm, "adopt", others, partial(_adopt_lab, definition), "is kept")
        if (code := first or second) is not None:
            sys.exit(code)


def _adopt_lab(definition: str | None, lcm: "Lcm", kind: Kind, lab: Any) -> Any:
    if kind is not LAB:
        fail(f"this is for labs, not for a {kind.name}", Exit.USAGE)
    return lcm.labs.adopt(lab.worker_id, lab.lab_id, definition=definition)


_FOUND: Final = (
    Column("NAME", lambda w: w.name),
    Column("INSTANCE", lambda w: w.ec2_instance_id or ""),
    Column("OWNER", lambda w: w.discovered.owner_id or ""),
    Column("VPC", lambda w: w.discovered.vpc_id or ""),
    Column("SUBNET", lambda w: w.discovered.subnet_id or ""),
    Column("AMI", lambda w: w.ami_id or ""),
    Column("ADDRESS", lambda w: w.public_ip or w.private_ip or ""),
    Column("CERTIFICATE", lambda w: w.cml_certificate_sha256 or "none yet"),
)


def disown(names: Optional = None, labels: Labels = None, every: Every = False) -> None:
    """End the adoption of labs; those that LCM made are removed as leaked."""
    _act("disown", names, labels, every, _of_labs("disown"), done="is kept no more")


def license_workers(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    release_it: Annotated[bool, typer.Option("--release", help="Give the license back.")] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read a token of their own from standard input.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
) -> None:
    """License the CML of workers, with the token of the fleet or one of their own."""
    if release_it and wait:
        fail("--wait is for registrations, not for --release", Exit.USAGE)
    token = sys.stdin.readline().strip() if token_stdin else None
    action = _of_workers(
        lambda lcm, worker: (
            lcm.workers.release_license(worker.id) if release_it else lcm.workers.license(worker.id, token)
        )
    )
    goal = "licensed" if wait else None
    _act("license", names, labels, every, action, goal=goal, within=timeout)


def retry(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Try failed workers or sessions again."""
    _act(
        "retry", names, labels, every, _retry, dry_run=dry_run, goal="ready" if wait else None, within=timeout
    )


def delete(
    names: Optional = None,
    labels: Labels = None,
    every: Every = False,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    purge: Annotated[bool, typer.Option("--purge", help="Of workers: the record, too.")] = False,
    dry_run: DryRun = False,
    files: Annotated[
        list[str] | None, typer.Option("--file", "-f", metavar="FILE", help="What fleet files name.")
    ] = None,
) -> None:
    """Delete workers with their disks, end sessions and classes, remove labs, revoke tokens."""
    if files is not None:
        from lcm.cli.declaring import delete_files

        if names or labels or every or purge:
            fail("with -f the files name what is meant, and records are kept", Exit.USAGE)
        seconds = duration_of(timeout).total_seconds() if wait else None
        delete_files(files, is_confirmed=yes, dry_run=dry_run, wait_seconds=seconds)
        return
    action = partial(_delete, purge=purge)
    goal = "deleted" if wait else None
    _act("delete", names, labels, every, action, dry_run=dry_run, is_confirmed=yes, goal=goal, within=timeout)


def extend(
    session: Annotated[str, typer.Argument(help="Id of the session, or its first characters.")],
    until: Annotated[str, typer.Option(metavar="TIME", help="The later end: 2026-01-31T18:00Z.")],
) -> None:
    """Book a later end of a session."""
    with connected() as lcm:
        extended = lcm.sessions.extend(kind_of("session").get(lcm, session).id, _moment(until))
        print(f"session/{extended.id} ends at {moment(extended.ends_at)}")


def wait_for(
    names: Named,
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            help="ready, running, stopped, deleted, licensed; of sessions scheduled, ready, running, ended.",
        ),
    ] = "ready",
    timeout: Timeout = "15m",
) -> None:
    """Wait until workers or sessions have reached a state. A worker is ready when its CML answers."""
    with connected() as lcm:
        from lcm.client import NotFound

        try:
            chosen = select(lcm, names, [], every=False)
        except NotFound:
            if goal != "deleted":
                raise
            return
        wait_until(lcm, chosen, *_goal_of(chosen, goal, timeout))


def _act(
    verb: str,
    names: Sequence[str] | None,
    labels: Sequence[str] | None,
    every: bool,
    action: Act,
    *,
    dry_run: bool = False,
    is_confirmed: bool = True,
    done: str | None = None,
    goal: str | None = None,
    within: str = "15m",
) -> None:
    """Request an action of all that is chosen."""
    with connected() as lcm:
        chosen = select(lcm, names or [], labels or [], every=every)
        if dry_run:
            _foresee(lcm, verb, chosen)
            return
        awaited = _goal_of(chosen, goal, within) if goal is not None else None
        confirm(f"{verb.capitalize()} {_counted(chosen)}?", is_given=is_confirmed)
        accepted, first = _request_each(lcm, verb, chosen, action, done)
        if awaited is not None and accepted:
            wait_until(lcm, accepted, *awaited)
        if first is not None:
            sys.exit(first)


def _counted(chosen: Sequence[tuple[Kind, Any]]) -> str:
    """Return what is chosen in a few words: the one, or how many of each kind."""
    if len(chosen) == 1:
        return chosen[0][0].reference(chosen[0][1])
    counts = Counter(kind.name for kind, _ in chosen)
    words = [f"{n} {kind_of(name).plural}" if n > 1 else f"{n} {name}" for name, n in counts.items()]
    return " and ".join(words)


def _request_each(
    lcm: "Lcm", verb: str, chosen: Sequence[tuple[Kind, Any]], action: Act, done: str | None
) -> tuple[list[tuple[Kind, Any]], Exit | None]:
    """Return those that accept, and the first error; what is refused is said and the others go on."""
    from lcm.client import Refused

    first: Exit | None = None
    accepted = []
    for kind, item in chosen:
        try:
            changed = action(lcm, kind, item) or item
        except Refused as refused:
            note(f"{paint('lcm:', '1;31', sys.stderr)} {kind.reference(item)}: {plainly(refused)}")
            first = first or code_of(refused)
            continue
        accepted.append((kind, changed))
        print(f"{kind.reference(item)} {done or f'{verb} accepted'}")
        if kind is SESSION and changed.id != item.id:
            print(f"{kind.reference(changed)} created in its place")
    return accepted, first


def _goal_of(chosen: Sequence[tuple[Kind, Any]], goal: str, within: str) -> tuple[str, float]:
    """Return what these can be waited for and how many seconds, or end with what is wrong with that."""
    from lcm.client import SessionGoal, WorkerGoal

    kinds = {kind.name for kind, _ in chosen}
    if kinds not in ({"worker"}, {"session"}):
        fail("wait for workers, or for sessions", Exit.USAGE)
    is_worker = kinds == {"worker"}
    if goal == "deleted" and not is_worker:
        goal = str(SessionGoal.ENDED)
    goals = list(map(str, WorkerGoal if is_worker else SessionGoal))
    if goal not in goals:
        fail(f"--for {goal}: choose one of {', '.join(goals)}", Exit.USAGE)
    return goal, duration_of(within).total_seconds()


def wait_until(lcm: "Lcm", chosen: Sequence[tuple[Kind, Any]], goal: str, seconds: float) -> None:
    """Wait, and print each change of state on the way."""
    from lcm.client import Standing, WaitFailed

    names = {item.id: kind.reference(item) for kind, item in chosen}
    began = CLOCK.monotonic()
    newest = ""

    def on_progress(resource_id: str, standing: Standing) -> None:
        nonlocal newest
        newest = names[resource_id]
        if sys.stderr.isatty():
            note(f"{newest}: {standing.now} ({span(CLOCK.monotonic() - began)})")

    resources = lcm.workers if chosen[0][0] is WORKER else lcm.sessions
    try:
        resources.wait_for_all(list(names), goal, timeout_seconds=seconds, on_progress=on_progress)
    except WaitFailed as failure:
        fail(f"{newest}: {failure}")
    for name in names.values():
        print(f"{name} {goal}")


def _foresee(lcm: "Lcm", verb: str, chosen: Sequence[tuple[Kind, Any]]) -> None:
    """Print what would happen. What a worker can is what the control plane says of it."""
    prices = {template.name: template.usd_per_hour for template in lcm.templates.list_all()}
    change = 0.0
    for kind, item in chosen:
        if kind is not WORKER:
            print(f"{kind.reference(item)} would be asked to {verb}")
            continue
        actions = list(map(str, item.possible_actions))
        if verb not in actions:
            can = ", ".join(actions) or "nothing"
            print(f"{kind.reference(item)} is {item.status} and would refuse; it can {can}")
            continue
        price = prices.get(item.template_name, 0.0) * _direction(verb, item)
        change += price
        print(f"{kind.reference(item)} is {item.status} and would accept: {_dollars(price)}")
    now = lcm.cost().total.usd_per_hour
    print(f"cost per hour: {usd(now)} now, {usd(max(now + change, 0.0))} afterwards")


def _direction(verb: str, worker: Any) -> int:
    """Return whether the action starts to cost, ends it, or neither."""
    is_paid = str(worker.status) in ("provisioning", "starting", "running", "draining")
    if verb in ("start", "retry"):
        return 0 if is_paid else 1
    return -1 if verb in ("stop", "drain", "delete") and is_paid else 0


def _dollars(change: float) -> str:
    return (
        f"{'+' if change > 0 else '-'}{usd(abs(change))} per hour"
        if change
        else "it costs no more and no less"
    )


def _start(lcm: "Lcm", kind: Kind, item: Any) -> Any:
    if kind is LAB:
        return _lab(lcm, item, "start")
    return _of_workers(lambda lcm, worker: lcm.workers.start(worker.id))(lcm, kind, item)


def _stop(lcm: "Lcm", kind: Kind, item: Any) -> Any:
    if kind is LAB:
        return _lab(lcm, item, "stop")
    return _of_workers(lambda lcm, worker: lcm.workers.stop(worker.id))(lcm, kind, item)


def _retry(lcm: "Lcm", kind: Kind, item: Any) -> Any:
    if kind is SESSION:
        return lcm.sessions.retry(item.id)
    return _of_workers(lambda lcm, worker: lcm.workers.retry(worker.id))(lcm, kind, item)


def _delete(lcm: "Lcm", kind: Kind, item: Any, *, purge: bool) -> Any:
    deletions: Mapping[str, Callable[[], Any]] = {
        "worker": lambda: lcm.workers.delete(item.id, purge=purge),
        "definition": lambda: lcm.definitions.delete(item.id),
        "session": lambda: lcm.sessions.end(item.id),
        "class": lambda: lcm.classes.end(item.id),
        "template": lambda: lcm.templates.delete(item.name),
        "lab": lambda: _lab(lcm, item, "remove"),
        "token": lambda: lcm.tokens.revoke(item.id),
    }
    if kind.name not in deletions:
        fail(f"a {kind.name} cannot be deleted", Exit.USAGE)
    return deletions[kind.name]()


def _lab(lcm: "Lcm", lab: Any, action: str) -> Any:
    from lcm.domain.lablet.listed_lab import LabAction

    return lcm.labs.request(lab.worker_id, lab.lab_id, LabAction(action), title=lab.title)


def _of_labs(action: str) -> Act:
    """Return the action, refused for anything but a lab."""

    def act(lcm: "Lcm", kind: Kind, item: Any) -> Any:
        if kind is not LAB:
            fail(f"this is for labs, not for a {kind.name}", Exit.USAGE)
        return _lab(lcm, item, action)

    return act


def _of_workers(action: Callable[["Lcm", Any], Any]) -> Act:
    """Return the action, refused for anything but a worker."""

    def act(lcm: "Lcm", kind: Kind, item: Any) -> Any:
        if kind is not WORKER:
            fail(f"this is for workers, not for a {kind.name}", Exit.USAGE)
        return action(lcm, item)

    return act


def duration_of(text: str) -> timedelta:
    """Return the duration of a text such as 90s, 45m, 4h or 2d."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        fail(f"{text!r} is not a duration; write 90s, 45m, 4h or 2d", Exit.USAGE)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{text!r} is not a time; write 2026-01-31T18:00Z", Exit.USAGE)
    return found if found.tzinfo is not None else found.astimezone()


# Creations.

Tag = Annotated[list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="An EC2 tag; repeatable.")]


@create.command("worker")
def create_worker(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of the workers.")],
    template: Annotated[
        str, typer.Option(help="A name of 'lcm get templates'.", autocompletion=completion.templates)
    ],
    region: Annotated[str | None, typer.Option(help="A name of 'lcm get regions'.")] = None,
    tags: Tag = None,
    licensed: Annotated[
        bool, typer.Option("--licensed", help="Register its CML with the fleet's token.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Create workers of a template."""
    given = dict(_pair(tag) for tag in tags or [])
    seconds = duration_of(timeout).total_seconds()
    with connected() as lcm:
        if dry_run:
            price = lcm.templates.get(template).usd_per_hour * len(names)
            now = lcm.cost().total.usd_per_hour
            print(f"would create {', '.join(names)} of template {template}")
            print(f"cost per hour: {usd(now)} now, {usd(now + price)} afterwards")
            return
        created = []
        for name in names:
            worker = lcm.workers.create(name, template, aws_region=region, tags=given, licensed=licensed)
            created.append((WORKER, worker))
            print(f"worker/{worker.name} created")
        if wait:
            wait_until(lcm, created, "ready", seconds)


@create.command("definition")
def create_definition(
    name: Annotated[str, typer.Argument(help="Name of the definition.")],
    topology: Annotated[Path, typer.Option("--file", "-f", help="The topology, as CML exports it.")],
    version: Annotated[str | None, typer.Option(help="For example 1.2.0. Default: 1.0.0.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it needs, and where it can run.")
    ] = False,
) -> None:
    """Store a lab topology, from which sessions are run."""
    try:
        text = sys.stdin.read() if str(topology) == "-" else topology.read_text()
    except OSError as error:
        fail(f"cannot read {topology}: {error.strerror}")
    except UnicodeError:
        fail(f"cannot read {topology}: it is no text")
    with connected() as lcm:
        if dry_run:
            _show_analysis(lcm.definitions.analyse(text))
            return
        made = lcm.definitions.create(name, text, version=version)
        print(f"definition/{made.name}@{made.version} created")


def _show_analysis(found: Any) -> None:
    needs = found.needs
    print_facts(
        [
            ("Title", found.title),
            ("Needs", f"{needs.cpu:g} CPU, {needs.memory_gb:g} GB memory, {needs.storage_gb:g} GB disk"),
            ("Nodes", f"{len(found.nodes)}, with {found.link_count} links"),
            ("Unknown", ", ".join(found.unknown_definitions)),
            ("Warnings", "; ".join(warning.text for warning in found.warnings)),
        ]
    )
    columns = (
        Column("KIND", lambda fit: fit.kind),
        Column("NAME", lambda fit: fit.name),
        Column("CAN RUN IT", lambda fit: "yes" if fit.is_possible else "no"),
        Column("WHY NOT", lambda fit: fit.reason),
    )
    print_table(found.fits, columns)


From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="2026-01-31T09:00Z. Default: now.")]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="The end; it goes with --from.")]


@create.command("session")
def create_session(
    definition: Annotated[str, typer.Argument(help="Name of its definition.")],
    start: From = None,
    end: To = None,
    wait: Wait = False,
    timeout: Timeout = "15m",
    dry_run: DryRun = False,
) -> None:
    """Run a lab, now or in a timeslot."""
    seconds = duration_of(timeout).total_seconds()
    with connected() as lcm:
        if dry_run:
            _preview(lcm, definition, 1, _timeslot(start, end))
            return
        created = lcm.sessions.create(definition, timeslot=_timeslot(start, end))
        print(f"session/{created.session.id} created")
        note(created.forecast.text)
        if wait:
            wait_until(lcm, [(SESSION, created.session)], "ready", seconds)


@create.command("class")
def create_class(
    name: Annotated[str, typer.Argument(help="Name of the class.")],
    definition: Annotated[str, typer.Option(help="Name of its definition.")],
    seats: Annotated[int, typer.Option(help="How many sessions.", min=1)],
    start: From = None,
    end: To = None,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="Place no seat before each has a worker.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Run a lab for many people, now or in a timeslot."""
    with connected() as lcm:
        timeslot = _timeslot(start, end)
        if dry_run:
            _preview(lcm, definition, seats, timeslot)
            return
        created = lcm.classes.create(
            name, definition, seats, timeslot=timeslot, all_or_nothing=all_or_nothing
        )
        print(f"class/{created.batch.id} created")
        note(created.forecast.text)


def _preview(lcm: "Lcm", definition: str, seats: int, timeslot: Any) -> None:
    """Print what the scheduler would do."""
    from lcm.rest.scheduling import PreviewRequest

    slot = timeslot.booked() if timeslot is not None else None
    found = lcm.sessions.preview(
        PreviewRequest(definition_id=lcm.definitions.get(definition).id, count=seats, timeslot=slot)
    )
    print(f"{found.verdict}: {found.text}")
    print(f"{found.placed} placed at once, {found.waiting} wait, {found.impossible} impossible")
    for launch in found.launches:
        print(f"launches {launch.count} of {launch.template} in {launch.region}")
    if found.brought_back:
        print(f"brings back {', '.join(found.brought_back)}")
    if found.usd_per_hour is not None:
        print(f"cost per hour: +{usd(found.usd_per_hour)}")


@create.command("token")
def create_token(
    name: Annotated[str, typer.Argument(help="The user or script it is for; shown in timelines.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")],
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Lifetime, for example 12h or 90d.")
    ] = None,
) -> None:
    """Create an access token and print it. It cannot be shown again."""
    seconds = int(duration_of(expires).total_seconds()) if expires is not None else None
    with connected() as lcm:
        print(lcm.tokens.create(name, role, expires_in_seconds=seconds).token)
        note("Keep it now: it is not shown again.")


def _timeslot(start: str | None, end: str | None) -> Any:
    if start is None and end is None:
        return None
    if start is None or end is None:
        fail("a timeslot needs --from and --to", Exit.USAGE)
    from lcm.rest.lablet_requests import NewTimeslot

    return NewTimeslot(start=_moment(start), end=_moment(end))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"--tag {text}: write NAME=VALUE", Exit.USAGE)
    return name, value


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "start": start,
    "stop": stop,
    "drain": drain,
    "hold": hold,
    "release": release,
    "adopt": adopt,
    "disown": disown,
    "retry": retry,
    "delete": delete,
    "extend": extend,
    "license": license_workers,
    "wait": wait_for,
}
