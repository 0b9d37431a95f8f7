"""An admin sets and removes the login that people get with the sessions of a definition."""

from msgspec.structs import replace

from lcm.control_plane.records.access_logins import forget_login, seal_login
from lcm.control_plane.records.definitions import StoredDefinition
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import UNCONDITIONAL, Preconditions
from lcm.domain.errors import Conflict, RequestError
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.definition import DefinitionStatus
from lcm.rest.lablet_access import AccessLogin


async def set_login(
    records: Records,
    definition_id: str,
    login: AccessLogin,
    *,
    by: str,
    preconditions: Preconditions = UNCONDITIONAL,
) -> StoredDefinition:
    """Have people get this login with the sessions of this version, those that run included."""
    await records.definitions.get(definition_id)
    ref = await seal_login(records, definition_id, login)
    try:
        stored = await _change(records, definition_id, ref, by, preconditions)
    except RequestError:  # nothing else proves that the record does not name it
        await forget_login(records, ref)
        raise
    if stored.access_ref != ref:  # the request was carried out before
        await forget_login(records, ref)
    return stored


async def remove_login(
    records: Records, definition_id: str, *, by: str, preconditions: Preconditions = UNCONDITIONAL
) -> StoredDefinition:
    """Have people get no login with the sessions of this version."""
    return await _change(records, definition_id, None, by, preconditions)


async def _change(
    records: Records, definition_id: str, ref: str | None, by: str, preconditions: Preconditions
) -> StoredDefinition:
    """Change the record, then remove the login that it no longer names."""
    before: str | None = None

    def decide(stored: StoredDefinition) -> StoredDefinition:
        nonlocal before
        made, before = stored.definition, stored.access_ref
        if made.status is DefinitionStatus.ARCHIVED:
            raise Conflict(f"{made.name} {made.version} is archived; create a new definition")
        return replace(stored, access_ref=ref)

    after = await records.definitions.change(
        definition_id, preconditions.guard(decide, noun="lablet definition")
    )
    if before != after.access_ref:
        await forget_login(records, before)
        await records.lablet_audit.note(
            LabletEvent.DEFINITION_LOGIN_CHANGED,
            by=by,
            reason=f"{after.definition.name} {after.definition.version}: login {'set' if ref else 'removed'}",
            definition_id=definition_id,
        )
    return after
