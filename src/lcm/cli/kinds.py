"""The kinds of resources that commands are about: what they are called, listed by and shown as.

Everything about one kind is in one place here, so that all commands treat it alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lcm.cli.names import Names, short
from lcm.cli.output import Column, age, moment, span, usd
from lcm.cli.terminal import Exit, fail
from lcm.core.blocking_clock import BlockingClock

if TYPE_CHECKING:
    from lcm.client import Lcm

NOW: Final = BlockingClock().now()


@dataclass(frozen=True)
class Kind:
    """One kind of resource."""

    name: str
    plural: str
    columns: Sequence[Column]
    list_all: Callable[["Lcm"], Sequence[Any]]
    get: Callable[["Lcm", str], Any]
    name_of: Callable[[Any], str]
    labels_of: Callable[[Any], Mapping[str, str]] = lambda _: {}
    """What `-l` selects by."""
    id_of: Callable[[Any], str] = lambda item: str(item.id)
    aliases: Sequence[str] = field(default=())
    columns_with: Callable[[Names], Sequence[Column]] | None = None
    """Instead of `columns`, where rows show names that are not in the records."""

    def columns_of(self, lcm: "Lcm") -> Sequence[Column]:
        return self.columns if self.columns_with is None else self.columns_with(Names(lcm))

    def reference(self, item: Any) -> str:
        return f"{self.name}/{self.name_of(item)}"


def _of_worker(worker: Any) -> Mapping[str, str]:
    tags: Mapping[str, str] = worker.tags
    fields = {"status": str(worker.status), "template": worker.template_name, "region": worker.aws_region}
    return {**fields, **tags}


def _of_session(session: Any) -> Mapping[str, str]:
    labels = {
        "status": str(session.status),
        "definition": session.definition_name,
        "owner": session.owner_id,
        "worker": session.worker_id or "",
    }
    return labels | ({"class": session.batch.name} if session.batch is not None else {})


def _status(worker: Any) -> str:
    if not worker.is_trusted:
        return f"{worker.status}, not adopted"
    if str(worker.status) != "running":
        return str(worker.status)
    return "ready" if worker.cml_ready else "running"


def _worker_color(worker: Any) -> str:
    from lcm.domain.lifecycle import COLOR

    return COLOR[worker.status]


def _session_color(session: Any) -> str:
    from lcm.domain.lablet.states import COLOR

    return COLOR[session.status]


def _pauses_in(worker: Any) -> str:
    if worker.hold is not None and worker.hold.until > NOW:
        return f"held {span((worker.hold.until - NOW).total_seconds())}"
    due = worker.target_pause_at
    return span(max((due - NOW).total_seconds(), 0)) if due is not None else ""


def _why_session(session: Any) -> str:
    return str(session.waits_for.text if session.waits_for is not None else session.status_reason)


def _one_session(lcm: "Lcm", name: str) -> Any:
    """Return the session of an id, or of the beginning of one."""
    from lcm.client import NotFound

    try:
        return lcm.sessions.get(name)
    except NotFound:
        found = [each for each in lcm.sessions.list_all(include_ended=True) if each.id.startswith(name)]
        if len(found) == 1 and name:
            return found[0]
        if found:
            fail(f"{len(found)} sessions have an id that begins with {name!r}; write more of it", Exit.USAGE)
        raise


@dataclass(frozen=True)
class SchoolClass:
    """A class, as its sessions show it."""

    id: str
    name: str
    definition: str
    seats: int
    statuses: Mapping[str, int]
    timeslot: Any


def _classes(lcm: "Lcm") -> list[SchoolClass]:
    seats: dict[str, list[Any]] = {}
    for session in lcm.sessions.list_all(include_ended=True):
        if session.batch is not None:
            seats.setdefault(session.batch.id, []).append(session)
    return [_class_of(sessions) for sessions in seats.values()]


def _class_of(sessions: Sequence[Any]) -> SchoolClass:
    first = sessions[0]
    statuses: dict[str, int] = {}
    for session in sessions:
        statuses[str(session.status)] = statuses.get(str(session.status), 0) + 1
    return SchoolClass(
        id=first.batch.id,
        name=first.batch.name,
        definition=f"{first.definition_name}@{first.definition_version}",
        seats=first.batch.size,
        statuses=statuses,
        timeslot=first.timeslot,
    )


def _one_of(plural: str, name: str, items: Sequence[Any], *keys: Callable[[Any], str]) -> Any:
    found = [item for item in items if any(key(item) == name for key in keys)]
    if not found:
        fail(f"there is none of this name: {name!r}; 'lcm get {plural}' shows them", Exit.NOT_FOUND)
    if len(found) > 1:
        fail(f"{len(found)} {plural} are named {name!r}; use the id", Exit.USAGE)
    return found[0]


def _lab_name(lab: Any) -> str:
    return f"{lab.worker_name}:{lab.lab_id}"


def _lab_title(lab: Any) -> str:
    return f"{lab.worker_name}:{lab.title}"


WORKER: Final = Kind(
    name="worker",
    plural="workers",
    aliases=("w",),
    columns=(
        Column("NAME", lambda w: w.name),
        Column("STATUS", _status, color=_worker_color),
        Column("TEMPLATE", lambda w: w.template_name),
        Column("LABS", lambda w: "" if w.labs_count is None else str(w.labs_count)),
        Column("PAUSES IN", _pauses_in),
        Column("AGE", lambda w: age(w.created_at, NOW)),
        Column("REGION", lambda w: w.aws_region, is_wide=True),
        Column("ADDRESS", lambda w: w.public_ip or w.private_ip or "", is_wide=True),
        Column("CML", lambda w: w.cml_version or "", is_wide=True),
        Column("LICENSE", lambda w: str(w.license.status), is_wide=True),
        Column("INSTANCE", lambda w: w.ec2_instance_id or "", is_wide=True),
        Column("CERTIFICATE", lambda w: w.cml_certificate_sha256 or "", is_wide=True),
        Column("ID", lambda w: w.id, is_wide=True),
        Column("WHY", lambda w: w.status_reason),
    ),
    list_all=lambda lcm: lcm.workers.list_all(),
    get=lambda lcm, name: lcm.workers.get(name),
    name_of=lambda w: str(w.name),
    labels_of=_of_worker,
)
DEFINITION: Final = Kind(
    name="definition",
    plural="definitions",
    aliases=("def", "defs"),
    columns=(
        Column("NAME", lambda d: d.name),
        Column("VERSION", lambda d: d.version),
        Column("STATUS", lambda d: str(d.status)),
        Column("NODES", lambda d: str(d.node_count)),
        Column("CPU", lambda d: f"{d.demand.needs.cpu:g}"),
        Column("MEMORY", lambda d: f"{d.demand.needs.memory_gb:g} GB"),
        Column("OWNER", lambda d: d.owner),
        Column("AGE", lambda d: age(d.created_at, NOW)),
        Column("ID", lambda d: d.id, is_wide=True),
    ),
    list_all=lambda lcm: lcm.definitions.list_all(),
    get=lambda lcm, name: lcm.definitions.get(name),
    name_of=lambda d: f"{d.name}@{d.version}",
    labels_of=lambda d: {"name": d.name, "status": str(d.status), "owner": d.owner},
)


def _session_columns(names: Names) -> Sequence[Column]:
    return (
        Column("ID", lambda s: short(s.id)),
        Column("DEFINITION", lambda s: f"{s.definition_name}@{s.definition_version}"),
        Column("CLASS", lambda s: s.batch.name if s.batch is not None else ""),
        Column("OWNER", lambda s: names.of_owner(s.owner_id)),
        Column("STATUS", lambda s: str(s.status), color=_session_color),
        Column("WORKER", lambda s: names.of_worker(s.worker_id)),
        Column("STARTS", lambda s: moment(s.timeslot.start) if s.timeslot is not None else "now"),
        Column("ENDS", lambda s: moment(s.ends_at)),
        Column("FULL ID", lambda s: s.id, is_wide=True),
        Column("OWNER ID", lambda s: s.owner_id, is_wide=True),
        Column("WORKER ID", lambda s: s.worker_id or "", is_wide=True),
        Column("WHY", _why_session),
    )


SESSION: Final = Kind(
    name="session",
    plural="sessions",
    aliases=("s",),
    columns=(),
    columns_with=_session_columns,
    list_all=lambda lcm: lcm.sessions.list_all(),
    get=_one_session,
    name_of=lambda s: str(s.id),
    labels_of=_of_session,
)
CLASS: Final = Kind(
    name="class",
    plural="classes",
    columns=(
        Column("NAME", lambda c: c.name),
        Column("ID", lambda c: short(c.id)),
        Column("DEFINITION", lambda c: c.definition),
        Column("SEATS", lambda c: str(c.seats)),
        Column("STARTS", lambda c: moment(c.timeslot.start) if c.timeslot is not None else "now"),
        Column("FULL ID", lambda c: c.id, is_wide=True),
        Column("STATUSES", lambda c: ", ".join(f"{count} {name}" for name, count in c.statuses.items())),
    ),
    list_all=_classes,
    get=lambda lcm, name: _one_of("classes", name, _classes(lcm), lambda c: c.id, lambda c: c.name),
    name_of=lambda c: str(c.name),
    labels_of=lambda c: {"definition": c.definition.partition("@")[0]},
)
TEMPLATE: Final = Kind(
    name="template",
    plural="templates",
    columns=(
        Column("NAME", lambda t: t.name),
        Column("TYPE", lambda t: t.instance_type),
        Column("CPU", lambda t: f"{t.cpu:g}"),
        Column("MEMORY", lambda t: f"{t.memory_gb:g} GB"),
        Column("DISK", lambda t: f"{t.disk_gb:g} GB"),
        Column("NODES", lambda t: f"{t.max_nodes:g}"),
        Column("KVM", lambda t: "yes" if t.has_kvm else "no"),
        Column("$/H", lambda t: usd(t.usd_per_hour)),
        Column("ENABLED", lambda t: "yes" if t.enabled else "no"),
        Column("DESCRIPTION", lambda t: t.description),
    ),
    list_all=lambda lcm: lcm.templates.list_all(),
    get=lambda lcm, name: lcm.templates.get(name),
    name_of=lambda t: str(t.name),
    id_of=lambda t: str(t.name),
)
LAB: Final = Kind(
    name="lab",
    plural="labs",
    columns=(
        Column("WORKER", lambda lab: lab.worker_name),
        Column("LAB", lambda lab: lab.lab_id),
        Column("STATE", lambda lab: lab.state or ""),
        Column("KIND", lambda lab: str(lab.kind or "")),
        Column("NODES", lambda lab: f"{lab.running_nodes}/{lab.node_count or 0}"),
        Column("OWNER", lambda lab: lab.owner),
        Column("SESSION", lambda lab: short(lab.session_id)),
        Column("TITLE", lambda lab: lab.title or ""),
    ),
    list_all=lambda lcm: lcm.labs.list_all(),
    get=lambda lcm, name: _one_of("labs", name, lcm.labs.list_all(), _lab_name, _lab_title),
    name_of=_lab_name,
    id_of=_lab_name,
    labels_of=lambda lab: {"worker": lab.worker_name, "kind": str(lab.kind or ""), "state": lab.state or ""},
)
TOKEN: Final = Kind(
    name="token",
    plural="tokens",
    columns=(
        Column("NAME", lambda t: t.name),
        Column("ROLE", lambda t: t.role),
        Column("CREATED BY", lambda t: t.created_by),
        Column("EXPIRES", lambda t: moment(t.expires_at) or "never"),
        Column("LAST USED", lambda t: moment(t.last_used_at) or "never"),
        Column("ID", lambda t: t.id, is_wide=True),
    ),
    list_all=lambda lcm: lcm.tokens.list_all(),
    get=lambda lcm, name: _one_of("tokens", name, lcm.tokens.list_all(), lambda t: t.id, lambda t: t.name),
    name_of=lambda t: str(t.name),
)
REGION: Final = Kind(
    name="region",
    plural="regions",
    columns=(
        Column("NAME", lambda r: r.name),
        Column("DEFAULT", lambda r: "yes" if r.is_default else ""),
    ),
    list_all=lambda lcm: lcm.regions(),
    get=lambda lcm, name: _one_of("regions", name, lcm.regions(), lambda r: r.name),
    name_of=lambda r: str(r.name),
    id_of=lambda r: str(r.name),
)

KINDS: Final = (WORKER, DEFINITION, SESSION, CLASS, TEMPLATE, LAB, TOKEN, REGION)
_BY_WORD: Final = {word: kind for kind in KINDS for word in (kind.name, kind.plural, *kind.aliases)}


def kind_of(word: str) -> Kind:
    """Return the kind that a word means, or end with an error that names all."""
    if word not in _BY_WORD:
        fail(
            f"{word!r} is no kind of resource; choose one of {', '.join(k.plural for k in KINDS)}", Exit.USAGE
        )
    return _BY_WORD[word]


def is_kind(word: str) -> bool:
    return word in _BY_WORD


def split(arguments: Sequence[str], default: Kind = WORKER) -> list[tuple[Kind, str]]:
    """Return the resources that these arguments name: `NAME…`, `KIND NAME…` or `KIND/NAME…`."""
    kind, names = default, list(arguments)
    if names and names[0] in _BY_WORD:
        kind = _BY_WORD[names.pop(0)]
    named = []
    for name in names:
        word, slash, rest = name.partition("/")
        named.append((_BY_WORD[word], rest) if slash and word in _BY_WORD else (kind, name))
    return named


def selector(texts: Sequence[str]) -> Callable[[Kind, Any], bool]:
    """Return whether a resource has all these labels: `team=ccna`, `team!=ccna`, or only `team`."""
    wanted = [part.strip() for text in texts for part in text.split(",") if part.strip()]

    def has_all(kind: Kind, item: Any) -> bool:
        labels = kind.labels_of(item)
        return all(_matches(part, labels) for part in wanted)

    return has_all


def _matches(part: str, labels: Mapping[str, str]) -> bool:
    if "!=" in part:
        name, _, value = part.partition("!=")
        return labels.get(name) != value
    name, equals, value = part.partition("=")
    return labels.get(name) == value.removeprefix("=") if equals else name in labels


def select(
    lcm: "Lcm", arguments: Sequence[str], labels: Sequence[str], *, every: bool
) -> list[tuple[Kind, Any]]:
    """Return the resources that names, `-l` or `--all` choose. An empty choice is an error."""
    kind_words = len(arguments) == 1 and is_kind(arguments[0])
    if arguments and not kind_words:
        if labels or every:
            fail("name resources, or choose them with -l or --all, not both", Exit.USAGE)
        return [(kind, kind.get(lcm, name)) for kind, name in split(arguments)]
    if not labels and not every:
        fail("name what is meant, or choose with -l or --all", Exit.USAGE)
    kind = kind_of(arguments[0]) if arguments else WORKER
    fits = selector(labels)
    found = [(kind, item) for item in kind.list_all(lcm) if fits(kind, item)]
    if not found:
        fail(f"no {kind.name} is chosen by that", Exit.NOT_FOUND)
    return found
