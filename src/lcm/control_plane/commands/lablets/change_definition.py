"""An admin creates, replaces, deprecates and deletes lablet definitions."""

import uuid

from msgspec.structs import replace

from lcm.control_plane.records.access_logins import forget_login, login_of, seal_login
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import Preconditions
from lcm.domain.errors import Conflict, RequestError
from lcm.domain.idempotency import KeyedRequest, refuse_other_content
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.definition import (
    NO_OPTIONS,
    DefinitionOptions,
    DefinitionStatus,
    archive,
    deprecate,
    new_definition,
    next_version,
    topology_hash,
)
from lcm.domain.lablet.topology import analyse
from lcm.rest.lablet_access import AccessLogin

NOUN = "lablet definition"


async def create_definition(
    records: Records,
    *,
    name: str,
    lab_yaml: str,
    version: str = "1.0.0",
    options: DefinitionOptions = NO_OPTIONS,
    access: AccessLogin | None = None,
    file_set: str | None = None,
    by: str,
    request: KeyedRequest | None = None,
) -> StoredDefinition:
    """Store a definition and its topology. With an idempotency key a repeated request finds the first one."""
    created = await _find_created(records, request)
    if created is not None:
        return created
    definition = new_definition(
        lab_yaml,
        analyse(lab_yaml),
        definition_id=_new_id(records, request),
        name=name,
        owner=by,
        now=records.clock.now(),
        version=version,
        options=options,
    )
    stored = StoredDefinition(
        id=definition.id,
        definition=definition,
        file_set=file_set,
        request_digest=request.content if request else None,
    )
    return await _add(records, stored, lab_yaml, access, by=by, request=request)


async def replace_definition(
    records: Records,
    definition_id: str,
    *,
    lab_yaml: str,
    options: DefinitionOptions | None = None,
    access: AccessLogin | None = None,
    by: str,
    preconditions: Preconditions,
) -> StoredDefinition:
    """Store the next version and deprecate this one. The same content again changes nothing.

    A crash between the two writes leaves both versions active, until the request is repeated or the keeper
    of lablet records deprecates the older one.
    """
    created = await _find_created(records, preconditions.request)
    if created is not None:
        await finish_replacement(records, created, by=by)
        return created
    before = await records.definitions.get(definition_id)
    newest = await records.definitions.newest(before.definition.name)
    is_repeated = newest is not None and _has_content(newest, lab_yaml, options, before)
    if newest is not None and is_repeated and await _has_login(records, newest, access):
        await finish_replacement(records, newest, by=by)
        return newest
    preconditions.refuse_other_version(before, noun=NOUN)
    if newest is not None and newest.id != before.id:
        raise Conflict(
            f"{before.definition.name} {newest.definition.version} is newer; change that one, id {newest.id}"
        )
    definition = next_version(
        before.definition,
        lab_yaml,
        analyse(lab_yaml),
        definition_id=_new_id(records, preconditions.request),
        by=by,
        now=records.clock.now(),
        options=options,
    )
    request = preconditions.request
    stored = await _add(
        records,
        StoredDefinition(
            id=definition.id,
            definition=definition,
            replaces=before.id,
            file_set=before.file_set,
            request_digest=request.content if request else None,
        ),
        lab_yaml,
        access or await login_of(records, before.id),
        by=by,
        request=request,
    )
    await finish_replacement(records, stored, by=by)
    return stored


def _has_content(
    newest: StoredDefinition, lab_yaml: str, options: DefinitionOptions | None, before: StoredDefinition
) -> bool:
    """Whether the newest version is what the request would make of the one that it names."""
    if newest.definition.status is not DefinitionStatus.ACTIVE:
        return False
    is_same = newest.definition.lab_yaml_hash == topology_hash(lab_yaml)
    return is_same and newest.definition.options == (options or before.definition.options)


async def _has_login(records: Records, stored: StoredDefinition, access: AccessLogin | None) -> bool:
    return access is None or access == await login_of(records, stored.id)


async def finish_replacement(records: Records, successor: StoredDefinition, *, by: str) -> None:
    """Deprecate the version that this one replaces. Repeating it changes nothing."""
    if successor.replaces is None:
        return
    before = await records.definitions.find(successor.replaces)
    if before is not None and before.definition.status is DefinitionStatus.ACTIVE:
        await deprecate_definition(records, before.id, by=by)


async def deprecate_definition(
    records: Records, definition_id: str, *, by: str, preconditions: Preconditions | None = None
) -> StoredDefinition:
    """Allow no new sessions; sessions that exist go on."""

    def decide(stored: StoredDefinition) -> StoredDefinition:
        return replace(stored, definition=deprecate(stored.definition))

    before = await records.definitions.get(definition_id)
    after = await records.definitions.change(
        definition_id, (preconditions or Preconditions()).guard(decide, noun=NOUN)
    )
    if before.definition.status is not after.definition.status:
        await _audit(records, LabletEvent.DEFINITION_DEPRECATED, after, by=by)
    return after


async def delete_definition(
    records: Records, definition_id: str, *, by: str, preconditions: Preconditions
) -> None:
    """Archive a definition of which no session is live; its record stays, since ended sessions name it."""
    live = sum(
        session.definition_id == definition_id and not session.is_ended
        for session in await records.sessions.list_all()
    )

    login: str | None = None

    def decide(stored: StoredDefinition) -> StoredDefinition:
        nonlocal login
        login = stored.access_ref
        return replace(stored, definition=archive(stored.definition, live_sessions=live), access_ref=None)

    before = await records.definitions.get(definition_id)
    after = await records.definitions.change(definition_id, preconditions.guard(decide, noun=NOUN))
    await forget_login(records, login)
    if before.definition.status is not after.definition.status:
        await _audit(records, LabletEvent.DEFINITION_DELETED, after, by=by)


async def _add(
    records: Records,
    stored: StoredDefinition,
    lab_yaml: str,
    access: AccessLogin | None,
    *,
    by: str,
    request: KeyedRequest | None,
) -> StoredDefinition:
    await records.definitions.keep_topology(lab_yaml)
    ref = await seal_login(records, stored.id, access) if access is not None else None
    try:
        added = await records.definitions.add(replace(stored, access_ref=ref))
    except RequestError:  # nothing else proves that no record names it
        await forget_login(records, ref)
        created = await _find_created(records, request)
        if created is None:
            raise
        return created
    await _audit(records, LabletEvent.DEFINITION_CREATED, added, by=by)
    return added


async def _audit(records: Records, event: LabletEvent, stored: StoredDefinition, *, by: str) -> None:
    made = stored.definition
    await records.lablet_audit.note(
        event, by=by, reason=f"{made.name} {made.version}", definition_id=stored.id
    )


async def _find_created(records: Records, request: KeyedRequest | None) -> StoredDefinition | None:
    """Return the definition that this request created when it was sent the first time."""
    if request is None:
        return None
    created = await records.definitions.find(_keyed_id(request))
    if created is not None:
        refuse_other_content(created.request_digest, request)
    return created


def _new_id(records: Records, request: KeyedRequest | None) -> str:
    return records.ids.new_id() if request is None else _keyed_id(request)


def _keyed_id(request: KeyedRequest) -> str:
    return str(uuid.uuid5(uuid.UUID(hex=request.key, version=4), "lablet-definition"))
