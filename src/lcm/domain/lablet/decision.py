"""What placement decides, and what is recorded of it."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from lcm.domain.lablet.filters import Label, Rejection
from lcm.domain.lablet.session import Nomination, WaitCode
from lcm.domain.lablet.snapshot import Stage


class Outcome(StrEnum):
    """What follows for a session."""

    ASSIGN = "assign"
    SCALE_UP = "scale_up"
    WAIT = "wait"
    IMPOSSIBLE = "impossible"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How full a worker is. The fullest that fits takes the session; ties go by name."""

    cpu: float
    """The share of the declared CPUs that is allocated."""
    memory: float
    sessions: float
    """0.01 for each session, 0.05 at most."""
    total: float


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that could take the session now."""

    worker_id: str
    score: Score
    is_last_choice: bool = False
    """It is overloaded, or it failed this session before."""


class NextEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The next thing to happen that can help a session."""

    what: str
    at: datetime


class Eta(msgspec.Struct, frozen=True, kw_only=True):
    """When a worker is expected to take a session."""

    earliest: datetime
    """If no other session were waiting, and workers came up as soon as half of those before."""
    likely: datetime
    basis: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for a session before it was decided."""

    rejections: tuple[Rejection, ...] = ()
    """Every reason of every worker."""
    counts: Mapping[Label, int] = {}
    """How many workers each filter rejects."""
    candidates: tuple[Candidate, ...] = ()
    """The best five."""
    next_event: NextEvent | None = None
    eta: Eta | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the next cycle does with one session, and why."""

    session_id: str
    outcome: Outcome
    worker_id: str | None = None
    score: Score | None = None
    code: WaitCode | None = None
    text: str = ""
    """One sentence for people."""
    nomination: Nomination | None = None
    launch_ready_at: datetime | None = None
    """When the worker is expected that is launched for it."""
    warnings: tuple[str, ...] = ()
    position: int = 0
    """The place among the sessions that still wait after this cycle, from 1."""
    ahead: int = 0
    explanation: Explanation | None = None
    """Only if it was asked for."""


class WorkerStep(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the drain of a worker, or start a stopped one."""

    worker_id: str
    stage: Stage


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """New workers for a group of sessions: one request."""

    region: str
    template: str
    seats: tuple[tuple[str, ...], ...]
    """The sessions that each worker is for."""
    usd_per_hour: float

    @property
    def count(self) -> int:
        return len(self.seats)


class Plan(NamedTuple):
    """One decision cycle."""

    decisions: dict[str, Decision]
    steps: tuple[WorkerStep, ...]
    launches: tuple[Launch, ...]


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a decision."""

    session_id: str
    at: datetime
    outcome: Outcome
    code: WaitCode | None
    worker_id: str | None
    """The worker that takes it, or is expected to."""
    text: str
    score: Score | None
    candidates: tuple[Candidate, ...]
    counts: Mapping[Label, int]
    revision: str
    """Of the snapshot."""
    milliseconds: float


def record_of(decision: Decision, *, at: datetime, revision: str, milliseconds: float) -> DecisionRecord:
    """The record of a decision; candidates and counts need its explanation."""
    explanation = decision.explanation or Explanation()
    return DecisionRecord(
        session_id=decision.session_id,
        at=at,
        outcome=decision.outcome,
        code=decision.code,
        worker_id=_worker_of(decision),
        text=decision.text,
        score=decision.score,
        candidates=explanation.candidates,
        counts=explanation.counts,
        revision=revision,
        milliseconds=milliseconds,
    )


def is_changed(before: DecisionRecord | None, decision: Decision) -> bool:
    """Whether a decision is worth a record: its outcome, code or worker changed, not only a number."""
    if before is None:
        return True
    return (before.outcome, before.code, before.worker_id) != (
        decision.outcome,
        decision.code,
        _worker_of(decision),
    )


def is_repeated(before: DecisionRecord, after: DecisionRecord) -> bool:
    """Whether a record says what the one before it says."""
    return (before.outcome, before.code, before.worker_id) == (after.outcome, after.code, after.worker_id)


def _worker_of(decision: Decision) -> str | None:
    return decision.worker_id or (decision.nomination.worker_id if decision.nomination else None)
