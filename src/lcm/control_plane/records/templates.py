"""The worker templates, seeded from YAML and kept with the records.

The file defines a template; an operator may enable or disable it and change its fields, which outlasts the
next start.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import structlog
from msgspec.structs import replace

from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions, etag
from lcm.control_plane.store.forward_compat import encode_over
from lcm.control_plane.store.port import Document, Store, VersionConflict
from lcm.core.configuration import Marked, Mistake, check
from lcm.domain.errors import Conflict, NotFound, PreconditionFailed, UnknownReference
from lcm.domain.idempotency import KeyedRequest
from lcm.domain.template import MAX_USER_DATA_BYTES, WorkerTemplate

log = structlog.get_logger(__name__)

KIND = "worker-template"
MAX_ATTEMPTS = 8

Change = Literal["created", "updated", "deleted"]
Listener = Callable[[Change, WorkerTemplate], None]
"""Called on every committed change with the template as it is now, or as it was before its deletion."""


class StoredTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The template of the file, and what an operator changed since."""

    seeded: WorkerTemplate
    switched: bool | None = None
    """Enabled or disabled by an operator; None: as in the file."""
    edits: dict[str, Any] = {}
    """The fields that an operator changed, with their values; the others follow the file."""
    recent_requests: tuple[KeyedRequest, ...] = ()
    """The last requests with an idempotency key that were carried out on this template."""

    @property
    def effective(self) -> WorkerTemplate:
        template = self.seeded
        if self.edits:
            template = msgspec.convert({**msgspec.to_builtins(template), **self.edits}, WorkerTemplate)
        return template if self.switched is None else replace(template, enabled=self.switched)

    def edited_to(self, wanted: WorkerTemplate) -> "StoredTemplate":
        """Return it with the fields that differ from the file as edits."""
        seeded, fields = msgspec.to_builtins(self.seeded), msgspec.to_builtins(wanted)
        differing = {name: value for name, value in fields.items() if value != seeded[name]}
        return replace(self, switched=differing.pop("enabled", None), edits=differing)


class TemplateMistakes(Exception):
    """A template that is not valid, with every mistake."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(map(str, mistakes)))


class _WrittenTemplate(WorkerTemplate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template as written in the file: an unknown name is a mistake, not a field of a later version."""


_decoder = msgspec.json.Decoder(StoredTemplate)


def _decode(document: Document | None) -> StoredTemplate | None:
    """Return the template, or None if there is none or it cannot be decoded."""
    if document is None:
        return None
    try:
        stored = _decoder.decode(document.body)
        _ = stored.effective  # its edits go with the file's fields
        return stored
    except msgspec.MsgspecError as error:
        log.error("unreadable template skipped", template=document.id, error=str(error))
        return None


class Templates:
    """Templates by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def find(self, name: str) -> WorkerTemplate | None:
        stored = _decode(await self._store.get(KIND, name))
        return stored.effective if stored else None

    async def get(self, name: str) -> WorkerTemplate:
        template = await self.find(name)
        if template is None:
            raise _unknown(name)
        return template

    async def enabled(self, name: str) -> WorkerTemplate:
        """Return the template of a new worker. Raises UnknownReference if there is none that is enabled."""
        stored = _decode(await self._store.get(KIND, name))
        if stored is None or not stored.effective.enabled:
            known = ", ".join(t.name for t in await self.list_all(enabled_only=True))
            raise UnknownReference(
                f"there is no template {name!r}; choose one of: {known or 'none is seeded'}"
            )
        return stored.effective

    async def get_stored(self, name: str) -> tuple[StoredTemplate, int]:
        """Return what the file says and what was changed since, with its version."""
        document = await self._store.get(KIND, name)
        stored = _decode(document)
        if document is None or stored is None:
            raise _unknown(name)
        return stored, document.version

    async def list_all(self, *, enabled_only: bool = False) -> list[WorkerTemplate]:
        """Return the templates, cheapest first."""
        stored = [_decode(document) for document in await self._store.list_all(KIND)]
        templates = [template.effective for template in stored if template is not None]
        return sorted(
            (template for template in templates if template.enabled or not enabled_only),
            key=lambda template: (template.usd_per_hour, template.name),
        )

    async def switch(
        self, name: str, *, enabled: bool, preconditions: Preconditions = UNCONDITIONAL
    ) -> WorkerTemplate:
        """Enable or disable a template for new workers; existing workers keep it."""

        def decide(stored: StoredTemplate | None) -> StoredTemplate:
            if stored is None:
                raise _unknown(name)
            return preconditions.once(lambda known: replace(known, switched=enabled))(stored)

        return await self._change(name, decide)

    async def edit(self, name: str, wanted: WorkerTemplate, seen: frozenset[str] | None) -> WorkerTemplate:
        """Change fields of a template for new workers; raises TemplateMistakes, and PreconditionFailed at
        another version than `seen`. Existing workers keep what they were launched with."""
        mistakes = [] if wanted.name == name else [_mistake("name", f"it must stay {name!r}")]
        others = [other.name for other in await self.list_all() if other.default and other.name != name]
        if wanted.default and others:
            mistakes.append(_mistake("default", f"template {others[0]!r} is the default; change that first"))
        if mistakes:
            raise TemplateMistakes(mistakes)

        def decide(stored: StoredTemplate | None) -> StoredTemplate:
            if stored is None:
                raise _unknown(name)
            return stored.edited_to(wanted)

        return await self._change(name, decide, seen)

    async def revert(self, name: str, seen: frozenset[str] | None) -> WorkerTemplate:
        """Drop every change of people: the template is as the file says."""

        def decide(stored: StoredTemplate | None) -> StoredTemplate:
            if stored is None:
                raise _unknown(name)
            return replace(stored, switched=None, edits={})

        return await self._change(name, decide, seen)

    async def delete(self, name: str) -> None:
        """Delete a template; the next start seeds it again if the file still has it."""
        document = await self._store.get(KIND, name)
        stored = _decode(document)
        if document is None or stored is None:
            raise _unknown(name)
        try:
            await self._store.delete(KIND, name, document.version)
        except VersionConflict:
            raise Conflict(f"template {name!r} was changed meanwhile; read it again") from None
        self._notify_listeners("deleted", stored.effective)

    async def seed(self, config: Mapping[str, Any]) -> int:
        """Upsert every template of a configuration by name; an invalid one is logged and skipped."""
        templates, mistakes = read_templates(config)
        for mistake in mistakes:
            log.error("invalid template skipped", mistake=str(mistake))
        for template in templates:
            await self._seed(template)
        return len(templates)

    async def _seed(self, template: WorkerTemplate) -> None:
        def decide(stored: StoredTemplate | None) -> StoredTemplate:
            if stored is None:
                return StoredTemplate(seeded=template)
            seeded = replace(stored, seeded=template)
            if contradiction := _contradiction(seeded.effective):
                # What the file says now does not go with what an operator changed.
                log.error("template of the file not taken", template=template.name, mistake=contradiction)
                return stored
            return seeded

        await self._change(template.name, decide)

    async def _change(
        self,
        name: str,
        decide: Callable[[StoredTemplate | None], StoredTemplate],
        seen: frozenset[str] | None = None,
    ) -> WorkerTemplate:
        """With `seen`, only a version with one of these entity tags is changed."""
        for _ in range(MAX_ATTEMPTS):
            document = await self._store.get(KIND, name)
            if document is not None and seen is not None and etag(document.version) not in seen:
                raise PreconditionFailed(
                    f"template {name!r} is at version {document.version} now; read it before you change it"
                )
            before = _decode(document)
            after = decide(before)
            if after == before:
                return after.effective
            version = document.version + 1 if document else 1
            body = (
                encode_over(document.body, before, after)
                if document and before
                else msgspec.json.encode(after)
            )
            changed = Document(KIND, name, version, body)
            try:
                await (self._store.replace(changed) if document else self._store.insert(changed))
            except VersionConflict:
                continue
            if before is None:
                self._notify_listeners("created", after.effective)
            elif before.effective != after.effective:
                self._notify_listeners("updated", after.effective)
            return after.effective
        raise Conflict(f"several requests change template {name!r} at once; try again")

    def _notify_listeners(self, change: Change, template: WorkerTemplate) -> None:
        for listener in self._listeners:
            listener(change, template)


def read_templates(config: Mapping[str, Any]) -> tuple[list[WorkerTemplate], list[Mistake]]:
    """Return the valid templates of a configuration, and every mistake of the others."""
    file = config.file if isinstance(config, Marked) else "configuration"
    entries = config.get("worker_templates")
    if not isinstance(entries, list):
        line = config.lines.get("worker_templates") if isinstance(config, Marked) else None
        return [], [Mistake(file, line, "worker_templates", "it must be a list of templates")]
    templates: dict[str, WorkerTemplate] = {}
    mistakes: list[Mistake] = []
    for position, entry in enumerate(entries):
        place = f"worker_templates[{position}]"
        found = checked_template(entry, within=config, at=place)
        if isinstance(found, list):
            mistakes += found
        elif found.default and any(template.default for template in templates.values()):
            line = entry.lines.get("default") if isinstance(entry, Marked) else None
            mistakes.append(Mistake(file, line, f"{place}.default", "another template is the default"))
        elif found.name in templates:
            line = entry.lines.get("name") if isinstance(entry, Marked) else None
            mistakes.append(Mistake(file, line, f"{place}.name", f"there is another template {found.name!r}"))
        else:
            templates[found.name] = found
    return list(templates.values()), mistakes


def checked_template(entry: object, *, within: Mapping[str, Any], at: str) -> WorkerTemplate | list[Mistake]:
    """Return the template that an entry describes, or everything that is wrong with it."""
    found = check(entry, _WrittenTemplate, within=within, at=at)
    if isinstance(found, list):
        return found
    template = msgspec.convert(found, WorkerTemplate, from_attributes=True)
    if contradiction := _contradiction(template):
        field, message = contradiction
        file = within.file if isinstance(within, Marked) else "configuration"
        line = entry.lines.get(field) if isinstance(entry, Marked) else None
        return [Mistake(file, line, f"{at}.{field}", message)]
    return template


def _contradiction(template: WorkerTemplate) -> tuple[str, str] | None:
    """Return a field that contradicts another one or exceeds a limit, and what is wrong with it."""
    if excess := _reserved_too_much(template):
        return excess, "it leaves nothing for sessions"
    if template.kms_key_id is not None and not template.ebs_encrypted:
        return "kms_key_id", "ebs_encrypted is false: there is nothing to encrypt with this key"
    if template.default and not template.has_kvm:
        return "default", "it must be able to run CML: bare metal, or nested_virtualization: true"
    if template.user_data is not None and len(template.user_data.encode()) > MAX_USER_DATA_BYTES:
        return "user_data", f"EC2 takes at most {MAX_USER_DATA_BYTES} bytes"
    return None


def _reserved_too_much(template: WorkerTemplate) -> str | None:
    """Return the field that reserves all that a worker of the template has."""
    reserved = (
        ("reserved_cpu", template.reserved_cpu, template.cpu * template.cpu_overcommit),
        ("reserved_memory_gb", template.reserved_memory_gb, template.memory_gb),
        ("reserved_storage_gb", template.reserved_storage_gb, template.disk_gb),
    )
    return next((name for name, amount, size in reserved if amount >= size), None)


def _mistake(field: str, message: str) -> Mistake:
    return Mistake("request", None, field, message)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no template {name!r}; list them with GET /api/worker-templates")
