"""One decision cycle: every waiting session in the order of the queue.

A session is decided in this order: a worker with room now, room that frees in time, a worker that comes up,
a drain to cancel, a stopped worker to start, a new worker. What a session takes or is to get counts as taken
for all that come after it in the queue, and for none before it: nominations are found anew in each cycle.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from math import ceil
from typing import Final

from msgspec.structs import replace

from lcm.domain.lablet.decision import Decision, Explanation, Outcome, Plan, WorkerStep
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.filters import Label, Rejection, judge, vector, warnings_of
from lcm.domain.lablet.launches import ScaleUp, region_of, scale_up
from lcm.domain.lablet.possibility import Possibilities
from lcm.domain.lablet.rooms import Group, GroupKey, WorkerRoom
from lcm.domain.lablet.session import LabletSession, Nomination, WaitCode
from lcm.domain.lablet.snapshot import PlacementWorker, Snapshot, Stage
from lcm.domain.lablet.states import PENDING
from lcm.domain.lablet.wording import clock_time, count_of, with_ahead

NONE: Final[frozenset[str]] = frozenset()
_Judged = tuple[tuple[int, datetime | None], tuple[Rejection, ...]]
"""The reasons of a worker, and the version and the end of the quarantine that they belong to."""


def queue_order(session: LabletSession) -> tuple[datetime, int, datetime, str]:
    """Due time to the minute, then priority, then age."""
    due = session.due_at.replace(second=0, microsecond=0)
    return (due, -session.priority, session.created_at, session.id)


def plan(snapshot: Snapshot, now: datetime, explained: Iterable[str] = ()) -> Plan:
    """Decide every waiting session. A gang that cannot be complete takes nothing from others."""
    if not snapshot.sessions:
        return Plan({}, (), ())
    blocked = dict.fromkeys(snapshot.incomplete_batches, _INCOMPLETE)
    ids = frozenset(explained)
    while True:
        cycle = Cycle(snapshot, now, blocked, ids)
        result = cycle.run()
        incomplete = cycle.incomplete_gangs()
        if not incomplete:
            return result
        blocked |= incomplete


def ready_times(snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """When each worker is up, or could be if it were brought back."""
    estimates: dict[str, datetime] = {}
    for session in snapshot.sessions:
        if session.nominated is not None:
            worker_id, moment = session.nominated.worker_id, session.nominated.ready_at
            estimates[worker_id] = min(moment, estimates.get(worker_id, moment))
    found = {}
    for worker in snapshot.workers:
        found[worker.id] = now
        if worker.stage is Stage.STOPPED:
            found[worker.id] = now + snapshot.times.worker_resume
        elif worker.stage is Stage.COMING:
            # Without a time of its own, the first estimate stays: one that moves with the clock never comes.
            estimate = worker.ready_at or estimates.get(worker.id) or now + snapshot.times.worker_boot
            found[worker.id] = max(now, estimate)
    return found


class Cycle:
    """One pass over the queue."""

    def __init__(
        self, snapshot: Snapshot, now: datetime, blocked: Mapping[str, str], explained: frozenset[str]
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self._blocked = blocked
        self._explained = explained
        self._queue = sorted(snapshot.sessions, key=queue_order)
        views = sorted(snapshot.workers, key=lambda view: (view.name, view.id))
        sized = [(view, view.room) for view in views]
        ready_at = ready_times(snapshot, now)
        self._workers = [
            WorkerRoom(view, vector(room), snapshot.ports, ready_at[view.id])
            for view, room in sized
            if room is not None
        ]
        self._by_kind: dict[tuple[object, ...], list[WorkerRoom]] = {}
        for worker in self._workers:
            self._by_kind.setdefault(worker.kind, []).append(worker)
        self._by_id = {worker.view.id: worker for worker in self._workers}
        self._views = [worker.view for worker in self._workers]
        self._views += [view for view, room in sized if room is None]
        self._last_ready = max((worker.ready_at for worker in self._workers), default=now)
        self._launched_at = {
            template.name: now + (template.boot or snapshot.times.worker_boot)
            for template in snapshot.templates
            if template.is_enabled
        }
        """When a worker of each template is ready that is launched now."""
        self._quarantined = _quarantined(views, now)
        self._releases = sorted(
            (claim.ends_at + snapshot.times.teardown, worker.name_key, worker.view.id)
            for worker in self._workers
            if worker.stage is Stage.READY
            for claim in worker.view.claims
            if claim.ends_at is not None and not claim.is_retained
        )
        begun = {(session.id, session.attempt) for session in self._queue if session.placement is not None}
        self._holders = {
            (claim.session_id, claim.attempt): worker
            for worker in (self._workers if begun else ())
            for claim in worker.view.claims
            if (claim.session_id, claim.attempt) in begun
        }
        """The workers with the claims of placements that were not confirmed."""
        self._judged: dict[Demand, dict[str, _Judged]] = {}
        self._changed: list[WorkerRoom] = []
        self._groups: dict[GroupKey, Group] = {}
        self._unplaced: list[LabletSession] = []
        self._decisions: dict[str, Decision] = {}
        self._steps: list[WorkerStep] = []

    @cached_property
    def _possibilities(self) -> Possibilities:
        """Only sessions without a worker raise the question."""
        return Possibilities(self.snapshot)

    def run(self) -> Plan:
        """The plan of this pass."""
        for index, session in enumerate(self._queue):
            explanation = self._explain(session) if session.id in self._explained else None
            decision = self._held(session) or self._early(session, index) or self._decide(session)
            self._decisions[session.id] = (
                replace(decision, explanation=explanation) if explanation is not None else decision
            )
        launched = scale_up(self.snapshot, self._unplaced, self._launched_at)
        self._apply(launched)
        self._hold_back_gangs({seat for each in launched.launches for bin_ in each.seats for seat in bin_})
        self._count_positions()
        return Plan(self._decisions, tuple(self._steps), launched.launches)

    def _count_positions(self) -> None:
        ahead = 0
        for session in self._queue:
            decision = self._decisions[session.id]
            text = with_ahead(decision.text, ahead) if decision.code in _IN_LINE else decision.text
            self._decisions[session.id] = replace(decision, text=text, position=ahead + 1, ahead=ahead)
            ahead += decision.outcome is not Outcome.ASSIGN

    # One session.

    def _held(self, session: LabletSession) -> Decision | None:
        """A worker has the claim of a placement that was not confirmed: it is confirmed now.

        Otherwise the claim would take the very room that its session waits for.
        """
        worker = self._holders.get((session.id, session.attempt))
        if worker is None or session.placement is None or session.placement.worker_id != worker.view.id:
            return None
        return Decision(
            session_id=session.id,
            outcome=Outcome.ASSIGN,
            worker_id=worker.view.id,
            score=worker.score(),
            text=f"Goes to worker {worker.view.name}, which has room for it reserved.",
        )

    def _early(self, session: LabletSession, ahead: int) -> Decision | None:
        """A decision that no worker matters for."""
        if session.status is PENDING:
            text = "Its window is not open yet."
            if session.timeslot is not None:
                opens_at = session.timeslot.opens_at(self.snapshot.times)
                text = f"Waits for its window, which opens at {self._time(opens_at, session)}."
            return _wait(session, WaitCode.WINDOW_NOT_OPEN, text)
        if ahead >= self.snapshot.queue_limit:
            return _wait(session, WaitCode.AHEAD_IN_QUEUE, "Waits for its turn.")
        if session.next_try_at is not None and session.next_try_at > self.now:
            moment = self._time(session.next_try_at, session)
            text = f"Waits until {moment}, because its last placement failed."
            return _wait(session, WaitCode.BACKOFF, text, self._kept_nomination(session))
        if session.batch is not None and session.batch.id in self._blocked:
            return self._impossible(session) or _wait(
                session, WaitCode.HELD_BACK_BY_GANG, self._blocked[session.batch.id]
            )
        return None

    def _decide(self, session: LabletSession) -> Decision:
        group = self._group(session)
        worker = group.best(Stage.READY, self._changed)
        if worker is not None:
            return self._assign(session, worker, group)
        decision = self._impossible(session) or self._prospect(session, group)
        if decision is not None:
            return decision
        ready_at = min(self._launched_at.values(), default=self.now + self.snapshot.times.worker_boot)
        if self._is_in_time(session, ready_at):
            self._unplaced.append(session)
            return _wait(session, WaitCode.NO_ROOM, "Waits for room, because no worker has enough.")
        minutes = count_of(ceil((ready_at - self.now).total_seconds() / 60), "minute")
        text = f"No worker has room, and a new one, which takes {minutes}, would come too late."
        return _wait(session, WaitCode.NO_ROOM, text)

    def _assign(self, session: LabletSession, worker: WorkerRoom, group: Group) -> Decision:
        score = worker.score()
        self._take(worker, session)
        text = f"Goes to worker {worker.view.name}."
        if worker.view.is_overloaded:
            text = f"Goes to worker {worker.view.name}, which is overloaded, because no other has room."
        elif group.is_last_choice(worker):
            text = f"Goes to worker {worker.view.name}, which failed it before, because no other has room."
        return Decision(
            session_id=session.id,
            outcome=Outcome.ASSIGN,
            worker_id=worker.view.id,
            score=score,
            text=text,
            warnings=warnings_of(worker.view, session.demand),
        )

    def _impossible(self, session: LabletSession) -> Decision | None:
        refusal = self._possibilities.refusal(session.demand)
        if refusal is None:
            return None
        return Decision(
            session_id=session.id, outcome=Outcome.IMPOSSIBLE, code=WaitCode.NO_WORKER_FITS, text=refusal
        )

    def _group(self, session: LabletSession) -> Group:
        avoided = frozenset(w for w, until in session.avoided_workers.items() if until > self.now)
        latest = session.latest_arrival(self.snapshot.times)
        if latest is not None and self._last_ready < latest:
            latest = None
        quarantined = self._quarantined.get(session.lab_yaml_hash, NONE)
        key = GroupKey(session.demand, avoided, quarantined, latest)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, self._by_kind, len(self._changed))
        return group

    def _is_in_time(self, session: LabletSession, ready_at: datetime) -> bool:
        latest = session.latest_arrival(self.snapshot.times)
        return latest is None or ready_at < latest

    def _take(self, worker: WorkerRoom, session: LabletSession, *, is_held: bool = False) -> None:
        worker.take(session, is_held=is_held)
        self._changed.append(worker)

    def _hold_from(self, worker: WorkerRoom, session: LabletSession, moment: datetime) -> None:
        worker.hold_from(moment, session, self.snapshot.times)
        self._changed.append(worker)

    def _prospect(self, session: LabletSession, group: Group) -> Decision | None:
        """Room that frees in time for its timeslot; else what comes first, room that frees or a worker."""
        times = self.snapshot.times
        due_at = session.lab_due_at(times.lab_lead)
        needed = due_at + times.handover_late if due_at is not None else self.now
        release = self._first_release(session, group, max(needed, self.now + times.worker_boot))
        worker = self._returning(session, group)
        if release is not None and (worker is None or release[0] <= needed or release[0] < worker.ready_at):
            return self._wait_for_release(session, *release)
        return self._nominate(session, worker) if worker is not None else None

    def _wait_for_release(self, session: LabletSession, moment: datetime, worker: WorkerRoom) -> Decision:
        self._hold_from(worker, session, moment)
        text = f"Waits for room on worker {worker.view.name}, free at {self._time(moment, session)}."
        nomination = Nomination(worker_id=worker.view.id, ready_at=moment)
        return _wait(session, WaitCode.WAITS_FOR_RELEASE, text, nomination)

    def _first_release(
        self, session: LabletSession, group: Group, deadline: datetime
    ) -> tuple[datetime, WorkerRoom] | None:
        """The first room that frees until then and is in time, and when."""
        times = self.snapshot.times
        for moment, _, worker_id in self._releases[group.releases_tried :]:
            if moment > deadline or not self._is_in_time(session, moment):
                break
            worker = self._by_id[worker_id]
            if group.suits(worker) and worker.can_take_at(moment, session.demand, times):
                return moment, worker
            group.releases_tried += 1
        return None

    def _returning(self, session: LabletSession, group: Group) -> WorkerRoom | None:
        """A worker that comes up, or one that a single request brings back."""
        nominated = self._by_id.get(session.nominated.worker_id) if session.nominated else None
        for stage in (Stage.COMING, Stage.DRAINING, Stage.STOPPED):
            worker = group.best(stage, self._changed)
            if worker is None:
                continue
            if nominated is not None and nominated.stage is stage and group.can_take(nominated):
                return nominated
            return worker
        return None

    def _nominate(self, session: LabletSession, worker: WorkerRoom) -> Decision:
        stage, name = worker.stage, worker.view.name
        moment = self._time(worker.ready_at, session)
        text = {
            Stage.COMING: f"Waits for worker {name}, expected at {moment}."
            if worker.ready_at > self.now
            else f"Waits for worker {name}, which should be ready by now.",
            Stage.DRAINING: f"Waits for worker {name}, which is kept in use.",
            Stage.STOPPED: f"Waits for worker {name}, which is started and expected at {moment}.",
        }[stage]
        outcome = Outcome.WAIT
        if stage is not Stage.COMING:
            outcome = Outcome.SCALE_UP
            self._steps.append(WorkerStep(worker_id=worker.view.id, stage=stage))
            worker.stage = Stage.COMING
        self._take(worker, session, is_held=True)
        nomination = Nomination(worker_id=worker.view.id, ready_at=worker.ready_at)
        decision = _wait(session, WaitCode.WAITS_FOR_WORKER, text, nomination)
        return replace(decision, outcome=outcome, warnings=warnings_of(worker.view, session.demand))

    def _kept_nomination(self, session: LabletSession) -> Nomination | None:
        """The nomination of a session that is not tried now, if it still holds."""
        if session.nominated is None:
            return None
        worker = self._by_id.get(session.nominated.worker_id)
        group = self._group(session)
        if worker is None:
            return None
        if worker.stage is Stage.COMING and group.can_take(worker):
            self._take(worker, session, is_held=True)
            return Nomination(worker_id=worker.view.id, ready_at=worker.ready_at)
        moment = session.nominated.ready_at
        is_later = worker.stage is Stage.READY and moment > self.now and group.suits(worker)
        if is_later and worker.can_take_at(moment, session.demand, self.snapshot.times):
            self._hold_from(worker, session, moment)
            return session.nominated
        return None

    def _time(self, moment: datetime, session: LabletSession) -> str:
        return clock_time(moment, session, self.now)

    def _explain(self, session: LabletSession) -> Explanation:
        """What each worker has for the session before anything is taken for it."""
        rejections: list[Rejection] = []
        counts = dict.fromkeys(Label, 0)
        known = self._judged.setdefault(session.demand, {})
        for view in self._views:
            found = self._judge(view, session, known)
            rejections += found
            for label in {rejection.label for rejection in found}:
                counts[label] += 1
        group = self._group(session)
        group.best(Stage.READY, self._changed)
        return Explanation(rejections=tuple(rejections), counts=counts, candidates=group.candidates())

    def _judge(
        self, view: PlacementWorker, session: LabletSession, known: dict[str, "_Judged"]
    ) -> tuple[Rejection, ...]:
        """The reasons of a worker, as they were for an equal demand if nothing was taken of it since."""
        until = view.quarantined.get(session.lab_yaml_hash)
        until = until if until is not None and until > self.now else None
        worker = self._by_id.get(view.id)
        key = (worker.version if worker is not None else 0, until)
        before = known.get(view.id)
        if before is None or before[0] != key:
            room = worker.room() if worker is not None else None
            before = known[view.id] = (key, judge(view, session.demand, room, quarantined_until=until))
        return before[1]

    # All sessions together.

    def _apply(self, result: ScaleUp) -> None:
        """Say what the launches mean for the sessions that no worker takes."""
        launched = {
            seat: self._launched_at[each.template]
            for each in result.launches
            for bin_ in each.seats
            for seat in bin_
        }
        for session in self._unplaced:
            outcome, code = Outcome.WAIT, WaitCode.SCALE_UP_REFUSED
            ready_at = launched.get(session.id)
            if ready_at is not None:
                outcome, code = Outcome.SCALE_UP, WaitCode.WAITS_FOR_WORKER
                text = f"Waits for a new worker, expected at {self._time(ready_at, session)}."
            elif session.id in result.refused:
                text = self._refusal(session)
            else:
                continue
            self._decisions[session.id] = replace(
                self._decisions[session.id],
                outcome=outcome,
                code=code,
                text=text,
                launch_ready_at=ready_at,
            )

    def _refusal(self, session: LabletSession) -> str:
        region = region_of(self.snapshot, session)
        growth = self.snapshot.growth[region]
        reason = growth.refusal.rstrip(".") or f"region {region} may not gain more workers"
        when = f" until {self._time(growth.retry_at, session)}" if growth.retry_at is not None else ""
        return f"Waits for room; no worker is launched{when}, because {reason}."

    def _gangs(self) -> dict[str, list[LabletSession]]:
        gangs: dict[str, list[LabletSession]] = {}
        for session in self._queue:
            if session.batch is not None and session.batch.is_all_or_nothing:
                gangs.setdefault(session.batch.id, []).append(session)
        return gangs

    def incomplete_gangs(self) -> dict[str, str]:
        """Gangs of which a session has neither a place nor a worker that comes, and the reason in words.

        The list ends with the first gang that took something: what it returns may complete a later one.
        """
        found: dict[str, str] = {}
        for gang, members in self._gangs().items():
            lacking = [self._decisions[m.id] for m in members if self._lacks_place(m)]
            if gang in self._blocked or not lacking:
                continue
            found[gang] = _gang_text(members, lacking)
            if len(lacking) < len(members):
                break
        return found

    def _lacks_place(self, session: LabletSession) -> bool:
        decision = self._decisions[session.id]
        return decision.code in _WITHOUT_PROSPECT and decision.nomination is None

    def _hold_back_gangs(self, launched: set[str]) -> None:
        """Place none of a gang while one of its sessions waits for a launch that is only requested now."""
        for members in self._gangs().values():
            if launched.isdisjoint(member.id for member in members):
                continue
            for member in members:
                decision = self._decisions[member.id]
                if decision.outcome is Outcome.ASSIGN and decision.worker_id is not None:
                    self._decisions[member.id] = replace(
                        decision,
                        outcome=Outcome.WAIT,
                        worker_id=None,
                        score=None,
                        code=WaitCode.HELD_BACK_BY_GANG,
                        text="Waits for its class, for which workers are launched.",
                        nomination=Nomination(worker_id=decision.worker_id, ready_at=self.now),
                    )


def _wait(
    session: LabletSession, code: WaitCode, text: str, nomination: Nomination | None = None
) -> Decision:
    return Decision(session_id=session.id, outcome=Outcome.WAIT, code=code, text=text, nomination=nomination)


def _quarantined(views: Sequence[PlacementWorker], now: datetime) -> dict[str, frozenset[str]]:
    """The workers that are quarantined for each topology."""
    found: dict[str, set[str]] = {}
    for view in views:
        for topology, until in view.quarantined.items():
            if until > now:
                found.setdefault(topology, set()).add(view.id)
    return {topology: frozenset(ids) for topology, ids in found.items()}


def _gang_text(members: Sequence[LabletSession], lacking: Sequence[Decision]) -> str:
    """Why a class waits as a whole: the reason of its first session that lacks a place."""
    worst = next((each for each in lacking if each.outcome is Outcome.IMPOSSIBLE), lacking[0])
    batches = [member.batch for member in members if member.id == worst.session_id]
    seat = next((batch.index + 1 for batch in batches if batch is not None), 0)
    verb = "can never be placed" if worst.outcome is Outcome.IMPOSSIBLE else "has no place"
    rest = len(lacking) - 1
    others = f", like {count_of(rest, 'other')}," if rest else ""
    reason = worst.text[:1].lower() + worst.text[1:].rstrip(".")
    return f"Its class starts as a whole, and seat {seat}{others} {verb}: {reason}."


_INCOMPLETE: Final = "Its class starts as a whole, and not every seat of it is booked or due yet."

_IN_LINE: Final = frozenset(
    {
        WaitCode.AHEAD_IN_QUEUE,
        WaitCode.NO_ROOM,
        WaitCode.WAITS_FOR_RELEASE,
        WaitCode.WAITS_FOR_WORKER,
        WaitCode.SCALE_UP_REFUSED,
    }
)
"""Codes for which it matters how many sessions are ahead."""

_WITHOUT_PROSPECT: Final = frozenset(
    {
        WaitCode.NO_ROOM,
        WaitCode.SCALE_UP_REFUSED,
        WaitCode.NO_WORKER_FITS,
        WaitCode.BACKOFF,
        WaitCode.AHEAD_IN_QUEUE,
        WaitCode.WINDOW_NOT_OPEN,
    }
)
