"""Commands that read: get, describe, explain, timeline, events, top, cost."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lcm.cli import completion, output
from lcm.cli.kinds import KINDS, NOW, Kind, kind_of, select, selector
from lcm.cli.output import (
    Column,
    age,
    format_of,
    moment,
    one_line,
    print_document,
    print_facts,
    print_items,
    usd,
)
from lcm.cli.terminal import Exit, connected, fail, paint
from lcm.core.blocking_clock import BlockingClock

if TYPE_CHECKING:
    from lcm.client import Event, Lcm

PANEL: Final = "Look"
CLOCK: Final = BlockingClock()
QUIET_SECONDS: Final = 0.5
"""A stream that is silent for so long has sent its snapshots."""
REFRESH_SECONDS: Final = 2.0

Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help=f"{output.FORMATS}.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--selector", "-l", metavar="NAME=VALUE", help="Only those with this tag or field; several: and."
    ),
]
Every = Annotated[bool, typer.Option("--all", help="All of this kind.")]
Named = Annotated[
    list[str],
    typer.Argument(
        metavar="[KIND] NAME…",
        help="Names; without a kind of workers. Or KIND/NAME.",
        autocompletion=completion.names,
    ),
]
_KIND_WORDS: Final = ", ".join(kind.plural for kind in KINDS)


def get(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=f"{_KIND_WORDS}.", autocompletion=completion.kinds)
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Only these.", autocompletion=completion.names_of_kind),
    ] = None,
    labels: Labels = None,
    output_format: Output = "table",
    ended: Annotated[
        bool, typer.Option("--ended", help="Terminated workers and ended sessions, too.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on: print each that changes.")] = False,
) -> None:
    """List resources."""
    form = format_of(output_format)
    word, _, name = kind.partition("/")
    wanted, chosen = kind_of(word), [*([name] if name else []), *(names or [])]
    fits = selector(labels or [])
    with connected() as lcm:
        if chosen:
            items = [wanted.get(lcm, each) for each in chosen]
        else:
            items = list(_all_of(wanted, lcm) if ended else wanted.list_all(lcm))
        items = [item for item in items if fits(wanted, item)]
        print_items(items, form, wanted.columns_of(lcm), wanted.reference, is_one=len(chosen) == 1)
        if watch:
            ids = {wanted.id_of(item) for item in items}
            _watch(
                lcm, wanted, items, lambda item: (not chosen or item.id in ids) and fits(wanted, item), form
            )


def _all_of(kind: Kind, lcm: "Lcm") -> Any:
    if kind.name == "worker":
        return lcm.workers.list_all(include_terminated=True)
    if kind.name == "session":
        return lcm.sessions.list_all(include_ended=True)
    return kind.list_all(lcm)


def _watch(
    lcm: "Lcm", kind: Kind, listed: Sequence[Any], is_wanted: Callable[[Any], bool], form: output.Format
) -> None:
    """Print every resource that changes after it was listed, until Ctrl-C."""
    types = {"worker": "worker.", "session": "lablet.session."}
    if kind.name not in types:
        fail("-w follows workers and sessions", Exit.USAGE)
    versions = {item.id: item.version for item in listed}
    columns = kind.columns_of(lcm)
    with lcm.events(types=[types[kind.name]]) as events:
        while True:
            event = events.next(3600.0)
            if event is None or event.type == "worker.metrics.updated":
                continue
            if event.type in ("listening", "reset"):
                found: Iterable[Any] = _present(lcm, kind, versions)
            else:
                found = [event.worker if kind.name == "worker" else event.session]
            for item in found:
                if item is not None and is_wanted(item) and item.version > versions.get(item.id, 0):
                    versions[item.id] = item.version
                    print_items([item], form, columns, kind.reference, is_one=True)
                    sys.stdout.flush()


def _present(lcm: "Lcm", kind: Kind, known: Mapping[str, int]) -> Iterator[Any]:
    """Yield what there is now; of what was known also what is over."""
    from lcm.client import NotFound

    items = {item.id: item for item in kind.list_all(lcm)}
    yield from items.values()
    for item_id in known.keys() - items.keys():
        with suppress(NotFound):
            yield kind.get(lcm, item_id)


def describe(
    names: Named,
    output_format: Output = "table",
) -> None:
    """Show all facts about a resource; of a worker also why, its labs and its last changes."""
    form = format_of(output_format)
    with connected() as lcm:
        for place, (kind, item) in enumerate(select(lcm, names, [], every=False)):
            if not form.is_table:
                print_document(item, form)
                continue
            if place:
                print()
            print_facts([(column.title.capitalize(), column.cell(item)) for column in kind.columns_of(lcm)])
            if kind.name == "worker":
                _describe_worker(lcm, item)
            elif kind.name == "session":
                why = one_line(lcm.sessions.explain(item.id).text)
                print(f"\n{paint('Why and when', '1')}\n  {why}")


def _describe_worker(lcm: "Lcm", worker: Any) -> None:
    if worker.tags:
        print_facts([("Tags", ", ".join(f"{name}={value}" for name, value in worker.tags.items()))])
    if worker.discovered is not None:
        found = worker.discovered
        whose = f"account {found.owner_id}, {found.vpc_id}, {found.subnet_id}"
        adopted = f"adopted by {found.adopted_by}" if worker.is_trusted else "not adopted"
        print_facts([("Found", f"{whose}; {adopted}"), ("Certificate", worker.cml_certificate_sha256 or "")])
    print_facts([("Can", ", ".join(map(str, worker.possible_actions)))])
    print()
    _print_explanation(lcm.workers.explain(worker.id))
    labs = lcm.workers.labs(worker.id).items
    if labs:
        print(f"\n{paint('Labs', '1')}")
        for lab in labs:
            print(one_line(f"  {lab.lab_id}  {lab.state or ''}  {lab.title or ''}"))
    print(f"\n{paint('Last changes', '1')}")
    for entry in lcm.workers.timeline(worker.id).items[-5:]:
        print(one_line(f"  {age(entry.at, NOW):>4}  {entry.target}: {entry.reason} ({entry.by})"))


def explain(names: Named, output_format: Output = "table") -> None:
    """Say why a worker has its status, what holds it, and what happens next; of a session, when it runs."""
    form = format_of(output_format)
    with connected() as lcm:
        for kind, item in select(lcm, names, [], every=False):
            if kind.name == "session":
                found: Any = lcm.sessions.explain(item.id)
            elif kind.name == "worker":
                found = lcm.workers.explain(item.id)
            else:
                fail(f"only workers and sessions are explained, not a {kind.name}", Exit.USAGE)
            if not form.is_table:
                print_document(found, form)
            elif kind.name == "session":
                print(f"{paint(item.id, '1')}: {one_line(found.text)}")
            else:
                print(f"{paint(item.name, '1')} is {item.status}, wanted {item.desired_status}")
                _print_explanation(found)


def _print_explanation(found: Any) -> None:
    print(f"{paint('Why', '1')}\n  {one_line(found.summary)}")
    for title, reasons in (("What holds it", found.holding), ("What happens next", found.next)):
        if reasons:
            print(paint(title, "1"))
        for reason in reasons:
            when = f" ({moment(reason.at)})" if reason.at is not None else ""
            print(one_line(f"  {reason.text}{when}"))


def timeline(names: Named, output_format: Output = "table") -> None:
    """Show what happened to a worker or a session, oldest first."""
    form = format_of(output_format)
    columns = (
        Column("WHEN", lambda entry: moment(entry.at)),
        Column("STATUS", lambda entry: str(entry.target)),
        Column("BY", lambda entry: entry.by),
        Column("PRINCIPAL", lambda entry: entry.principal_id or "", is_wide=True),
        Column("WHY", lambda entry: entry.reason),
    )
    with connected() as lcm:
        for kind, item in select(lcm, names, [], every=False):
            if kind.name not in ("worker", "session"):
                fail(f"a {kind.name} has no timeline; workers and sessions have", Exit.USAGE)
            is_worker = kind.name == "worker"
            found: Any = lcm.workers.timeline(item.id) if is_worker else lcm.sessions.history(item.id)
            print_items(list(found.items), form, columns, lambda entry: str(entry.target))


def events(
    workers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKER…]", help="Only theirs.", autocompletion=completion.workers),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens next.")] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only types that begin so, for example worker.lab.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="ID", help="Begin after this event, if LCM still has it.")
    ] = None,
    output_format: Output = "table",
) -> None:
    """Print the events of the fleet: what is so now as snapshots, with -f what happens then."""
    form = format_of(output_format)
    with connected() as lcm:
        ids = [lcm.workers.get(name).id for name in workers or []]
        with lcm.events(worker_ids=ids, types=types or [], last_event_id=since) as stream:
            opened: str | None = None
            while True:
                event = stream.next(3600.0 if follow else QUIET_SECONDS)
                is_new = event is not None and opened is not None and event.id not in (None, opened)
                if not follow and (event is None or is_new):
                    return
                if event is None:
                    continue
                if event.type in ("connected", "reset"):
                    opened = event.id  # that of all its snapshots, too
                if event.type not in ("listening", "heartbeat"):
                    _print_event(event, form)


def _print_event(event: "Event", form: output.Format) -> None:
    if form.is_table or form.name == "name":
        data = event.data or {}
        about = data.get("worker") or data.get("session") or data
        name = about.get("name") or data.get("session_id") or data.get("worker_id") or ""
        status = about.get("status") or ""
        why = about.get("status_reason") or ""
        print(one_line(f"{event.id or '-':<16} {event.type:<34} {name} {status} {why}".rstrip()))
    else:
        print_document({"id": event.id, "type": event.type, "data": event.data}, form)
    sys.stdout.flush()


def top(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on: print again every few seconds.")
    ] = False,
    output_format: Output = "table",
) -> None:
    """Show the load of the workers that run, the busiest first."""
    form = format_of(output_format)
    columns = (
        Column("NAME", lambda row: row["name"]),
        Column("CPU %", lambda row: _percent(row["cpu_utilization"])),
        Column("MEMORY %", lambda row: _percent(row["memory_utilization"])),
        Column("DISK %", lambda row: _percent(row["disk_utilization"])),
        Column("LABS", lambda row: "" if row["labs_count"] is None else str(row["labs_count"])),
        Column("NODES", lambda row: "" if row["nodes_count"] is None else str(row["nodes_count"])),
    )
    with connected() as lcm, lcm.events(types=["worker.metrics.updated"]) as stream:
        names = {worker.id: worker.name for worker in lcm.workers.list_all()}
        rows: dict[str, dict[str, Any]] = {}
        is_ready, due = False, 0.0
        while True:
            event = stream.next(QUIET_SECONDS)
            sample = event.data if event is not None and event.type == "worker.metrics.updated" else None
            if sample is not None:
                name = names.get(sample["worker_id"], "")
                rows[sample["worker_id"]] = {**_NO_LOAD, **sample, "name": name}
            is_ready = is_ready or (event is not None and event.type == "connected")
            is_complete = is_ready and (event is None or (sample is not None and event.id is not None))
            if is_complete and CLOCK.monotonic() >= due:
                found = sorted(rows.values(), key=lambda row: -(row["cpu_utilization"] or 0.0))
                print_items(
                    found, form, columns, lambda row: f"worker/{row['name']}", nothing="No worker runs."
                )
                sys.stdout.flush()
                if not watch:
                    return
                due = CLOCK.monotonic() + REFRESH_SECONDS


_NO_LOAD: Final = dict.fromkeys(
    ("cpu_utilization", "memory_utilization", "disk_utilization", "labs_count", "nodes_count")
)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def cost(
    by: Annotated[str, typer.Option(help="worker, template, region or day.")] = "worker",
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="As in 2026-11; the present one without.")
    ] = None,
    output_format: Output = "table",
) -> None:
    """Show what the fleet costs per hour now and in a month, its disks, and what pauses saved."""
    form = format_of(output_format)
    if by not in ("worker", "template", "region", "day"):
        fail(f"--by {by}: choose worker, template, region or day", Exit.USAGE)
    names: dict[str, str] = {}
    columns = (
        Column(by.upper(), lambda line: names.get(line.key, line.key)),
        Column("$/H NOW", lambda line: usd(line.usd_per_hour)),
        Column("MONTH", lambda line: usd(line.usd_this_month)),
        Column("DISKS", _usd_of_disks),
        Column("SAVED", lambda line: usd(line.usd_saved_this_month)),
        Column("HOURS RUN", lambda line: f"{line.running_hours_this_month:.1f}"),
    )
    with connected() as lcm:
        report = lcm.cost(month)
        if not form.is_table:
            print_document(report, form)
            return
        if by == "day":
            output.print_table(report.days, _DAY_COLUMNS)
            return
        if by == "worker":
            names |= {each.id: each.name for each in lcm.workers.list_all(include_terminated=True)}
        lines: list[Any] = [*getattr(report, f"by_{by}"), report.total]
        output.print_table(lines, columns)


def _usd_of_disks(line: Any) -> str:
    if line.usd_disk_this_month is None:
        return "unknown"
    amount = usd(line.usd_disk_this_month)
    return f"{amount} + {line.unknown_disks} unknown" if line.unknown_disks else amount


_DAY_COLUMNS: Final = (
    Column("DAY", lambda day: day.day),
    Column("COST", lambda day: usd(day.usd)),
    Column("DISKS", lambda day: usd(day.usd_disk)),
    Column("SAVED", lambda day: usd(day.usd_saved)),
)


def access(names: Named, output_format: Output = "table") -> None:
    """Show how the labs of a session or of a whole class are reached: ports and logins."""
    is_csv = output_format == "csv"
    form = format_of("table" if is_csv else output_format)
    with connected() as lcm:
        for kind, item in select(lcm, names, [], every=False):
            if kind.name == "class" and is_csv:
                print(lcm.classes.access_table(item.id), end="")
            elif kind.name == "class":
                sheet = lcm.classes.access(item.id)
                _print_access(sheet, [row for seat in sheet.seats for row in _ports_of(seat)], form)
            elif kind.name == "session" and not is_csv:
                found = lcm.sessions.access(item.id)
                rows = [{"seat": "", "note": "", "port": port} for port in found.ports]
                if form.is_table:
                    print(found.lab_url)
                _print_access(found, rows, form)
            else:
                fail("there is access to sessions and classes; csv is for classes", Exit.USAGE)


def _ports_of(seat: Any) -> list[dict[str, Any]]:
    head = {"seat": f"{seat.seat} {seat.owner_id}", "note": seat.note}
    if seat.access is None:
        return [{**head, "port": None}]
    return [{**head, "port": port} for port in seat.access.ports]


def _print_access(found: Any, rows: list[dict[str, Any]], form: output.Format) -> None:
    if not form.is_table:
        print_document(found, form)
        return
    columns = (
        Column("SEAT", lambda row: row["seat"]),
        *(_port_column(title, name) for title, name in _PORT_COLUMNS.items()),
        Column("NOTE", lambda row: row["note"]),
    )
    output.print_table(rows, columns)


_PORT_COLUMNS: Final = {
    "NODE": "label",
    "PROTOCOL": "protocol",
    "HOST": "host",
    "PORT": "port",
    "USER": "username",
    "PASSWORD": "password",
}


def _port_column(title: str, name: str) -> Column:
    return Column(title, lambda row: str(getattr(row["port"], name, None) or ""))


def api(
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="For example /api/scheduling/queue.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="The body in JSON; @FILE, or @- for standard input.")
    ] = None,
    if_match: Annotated[
        str | None, typer.Option(metavar="ETAG", help="Only if the resource is at this version; * for any.")
    ] = None,
) -> None:
    """Send any request of the API with the access of the context, and print its answer."""
    import msgspec

    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE") or not path.startswith("/"):
        fail("write a method and a path, for example: lcm api GET /api/regions", Exit.USAGE)
    try:
        body = None if data is None else msgspec.json.decode(_text_of(data))
    except (OSError, msgspec.DecodeError) as error:
        fail(f"--data: {error}", Exit.USAGE)
    with connected() as lcm:
        found = lcm.call(method, path, body, if_match=if_match)
    try:
        text = msgspec.json.format(found) + b"\n" if found else b""
    except msgspec.DecodeError:
        text = found
    print(text.decode(), end="")


def _text_of(data: str) -> str:
    if not data.startswith("@"):
        return data
    return sys.stdin.read() if data == "@-" else Path(data[1:]).read_text()


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    command.__name__: command
    for command in (get, describe, explain, timeline, events, top, cost, access, api)
}
