"""The text that is imported for a session: its topology, with the ports of its claim and its marker."""

from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict
from lcm.domain.lablet.instantiation import owner_of
from lcm.domain.lablet.marked_topology import mark_topology
from lcm.domain.lablet.rewrite import rewrite


async def session_topology(records: Records, session_id: str) -> str:
    """Return the text. Raises Conflict before an import is intended."""
    session = await records.sessions.get(session_id)
    owner = owner_of(session, await records.fleet.get())
    if owner is None:
        raise Conflict("no import is intended; record the intent before the topology is read")
    text = await records.definitions.topology(session.lab_yaml_hash)
    return mark_topology(rewrite(text, session.demand.ports, session.ports), owner.marker)
