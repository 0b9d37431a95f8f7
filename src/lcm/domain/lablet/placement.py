"""The one engine that chooses workers for sessions.

The scheduler carries out a whole plan; preview, explain and the booking forecast read single decisions of
the same plan, so they never disagree with it.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from lcm.domain.lablet import cycle, replay
from lcm.domain.lablet.decision import Decision, Plan
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Snapshot


class PlacementEngine:
    """Pure: equal snapshots lead to equal decisions, whatever the order of workers and sessions in them."""

    @staticmethod
    def plan(snapshot: Snapshot, now: datetime, explained: Iterable[str] = ()) -> Plan:
        """Decide every waiting session; sessions whose ids are `explained` get the reasons of all workers."""
        return cycle.plan(snapshot, now, explained)

    @staticmethod
    def decide(snapshot: Snapshot, session: LabletSession, now: datetime) -> Decision:
        """The decision about one session among all of the snapshot, with reasons and the expected time."""
        others = tuple(other for other in snapshot.sessions if other.id != session.id)
        whole = replace(snapshot, sessions=(*others, session))
        decision = cycle.plan(whole, now, (session.id,)).decisions[session.id]
        return replace(decision, explanation=replay.explain(decision, whole, session, now))
