"""The login that the nodes of a definition have: part of no record, sealed in the secret store.

Name and password are one secret, under a name of its own. It is stored before a record names it, and removed
once no record names it any more.
"""

from typing import Final

import msgspec

from lcm.control_plane.records.groups import Records
from lcm.core.redaction import redactor
from lcm.domain.errors import NotReadyYet
from lcm.rest.lablet_access import AccessLogin

PURPOSE: Final = "lablet-access"
READS: Final = 3

_decoder = msgspec.json.Decoder(AccessLogin)


async def seal_login(records: Records, definition_id: str, login: AccessLogin) -> str:
    """Store the login; return the name under which a record finds it."""
    redactor.protect(login.password)
    ref = f"{definition_id}-{records.ids.new_id()[:8]}"
    await records.secrets.put(PURPOSE, ref, msgspec.json.encode(login).decode())
    return ref


async def forget_login(records: Records, ref: str | None) -> None:
    """Remove a login that no record names. Repeating it changes nothing."""
    if ref is not None:
        await records.secrets.remove(PURPOSE, ref)


async def login_of(records: Records, definition_id: str) -> AccessLogin | None:
    """Return the login of a definition. One that is replaced at this moment is read again."""
    for _ in range(READS):
        stored = await records.definitions.find(definition_id)
        if stored is None or stored.access_ref is None:
            return None
        secret = await records.secrets.get(PURPOSE, stored.access_ref)
        if secret is not None:
            login = _decoder.decode(secret)
            redactor.protect(login.password)
            return login
    raise NotReadyYet("the login of the definition is being changed; ask again")
