"""The lablet controller is about to import a lab.

1. The claim says that its session may own a lab: from now on a stopped worker keeps it.
2. The session names the lab. Only then may the lab be imported.

A crash between the two leaves a claim that is kept too carefully; it is released with its session.
"""

from lcm.control_plane.records.groups import Records
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict
from lcm.domain.lablet import instantiation
from lcm.domain.lablet.admission import mark_import
from lcm.domain.lablet.session import LabletSession
from lcm.domain.worker import Worker
from lcm.rest.lablet_reports import ImportIntent


async def intend_import(
    records: Records, session_id: str, intent: ImportIntent, *, fence: Fence
) -> LabletSession:
    """Record the intent. A repeated request changes nothing."""
    now = records.clock.now()

    def judge(session: LabletSession, worker: Worker) -> LabletSession:
        return instantiation.intend_import(
            session,
            intent.generation,
            attempt=intent.attempt,
            instance_id=worker.instance.id,
            is_previous_gone=intent.is_previous_gone,
            now=now,
        )

    session = await records.sessions.get(session_id)
    if session.worker_id is None:
        raise Conflict(f"the session is {session.status} and has no worker; import nothing for it")
    judge(session, await records.workers.get(session.worker_id))
    worker = await records.workers.change(
        session.worker_id,
        lambda current: mark_import(current, session_id, intent.attempt, intent.generation, now=now),
        fence=fence,
    )
    return await records.sessions.change(session_id, lambda current: judge(current, worker), fence=fence)
