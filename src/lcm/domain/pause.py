"""The pause of a worker: a state machine of its own beside the lifecycle.

The lifecycle says what the instance does; the pause says whether LCM is about to stop it or has stopped it,
who requested that, why, and until when a drain may wait. Pure functions from pause to pause; a change without
a row in the table is refused.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from lcm.domain.errors import IllegalTransition


class PauseState(StrEnum):
    """How far a pause has come."""

    NONE = "none"
    DECIDED = "decided"
    REQUESTED = "requested"
    DRAINING = "draining"
    PAUSED = "paused"


NONE = PauseState.NONE
DECIDED = PauseState.DECIDED
REQUESTED = PauseState.REQUESTED
DRAINING = PauseState.DRAINING
PAUSED = PauseState.PAUSED

MEANING: Final = {
    NONE: "No pause is decided, requested or in force.",
    DECIDED: "An idle check found the worker idle. A second check must confirm it.",
    REQUESTED: "A stop is requested and not carried out. Activity cancels an automatic one.",
    DRAINING: "The stop waits for the sessions to end, at most until the drain deadline.",
    PAUSED: "The worker was stopped, or did not run yet, and was not running as desired since.",
}


class PauseTransition(NamedTuple):
    source: PauseState
    target: PauseState
    reason: str


# fmt: off
PAUSE_TRANSITIONS: Final = (
    PauseTransition(NONE,      DECIDED,   "the first idle check found it idle"),
    PauseTransition(NONE,      REQUESTED, "a stop was requested while it runs"),
    PauseTransition(NONE,      DRAINING,  "a drain was requested"),
    PauseTransition(NONE,      PAUSED,    "it was stopped outside LCM, or before it ran"),

    PauseTransition(DECIDED,   DECIDED,   "the decision expired and was made anew"),
    PauseTransition(DECIDED,   NONE,      "it was used, held, given a session, or is not running any more"),
    PauseTransition(DECIDED,   REQUESTED, "the second idle check confirmed it, or a stop was requested"),
    PauseTransition(DECIDED,   DRAINING,  "a drain was requested"),
    PauseTransition(DECIDED,   PAUSED,    "it was stopped outside LCM"),

    PauseTransition(REQUESTED, NONE,      "it was used before an automatic stop, or a start was requested"),
    PauseTransition(REQUESTED, REQUESTED, "an operator's stop replaced an automatic one"),
    PauseTransition(REQUESTED, PAUSED,    "the stop was carried out"),

    PauseTransition(DRAINING,  NONE,      "the drain was cancelled, or the worker was deleted"),
    PauseTransition(DRAINING,  REQUESTED, "a stop ended the wait for sessions"),
    PauseTransition(DRAINING,  DRAINING,  "an operator's drain replaced one of the scale-down"),
    PauseTransition(DRAINING,  PAUSED,    "the sessions ended or the deadline passed, and it was stopped"),

    PauseTransition(PAUSED,    NONE,      "it runs as desired again"),
    PauseTransition(PAUSED,    REQUESTED, "it was started outside LCM, and a stop was requested again"),
    PauseTransition(PAUSED,    PAUSED,    "a stop was requested again before it ran"),
)
# fmt: on

_ROWS: Final = frozenset((row.source, row.target) for row in PAUSE_TRANSITIONS)


class PauseReason(StrEnum):
    """Why a worker was stopped last."""

    IDLE_TIMEOUT = "idle_timeout"
    MANUAL = "manual"
    EXTERNAL = "external"


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the lablet controller before a stop: copy the running configurations into the labs."""

    asked_at: datetime
    until: datetime
    """The stop waits no longer."""
    ended_at: datetime | None = None
    """None: it is under way, or was not answered in time."""
    extracted: int = 0
    """Nodes whose configuration is in their lab now."""
    missed: int = 0
    """Nodes that had booted and whose configuration CML did not extract."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """The pause of one worker, and what is known of earlier ones."""

    state: PauseState = NONE
    since: datetime | None = None
    """When the state began; None if it never changed."""
    until: datetime | None = None
    """While it is draining: a drain that has not ended by then is ended by a stop."""
    reason: PauseReason | None = None
    """Of this pause or, without one, of the last; None if that was cancelled."""
    due_at: datetime | None = None
    """When the worker will be paused automatically unless it is used before."""
    extraction: Extraction | None = None
    """Of the configurations of its nodes, before the stop of this pause; None if none was requested."""

    last_paused_at: datetime | None = None
    last_paused_by: str | None = None
    last_resumed_at: datetime | None = None
    auto_pause_count: int = 0
    manual_pause_count: int = 0
    auto_resume_count: int = 0
    manual_resume_count: int = 0

    @property
    def decided_at(self) -> datetime | None:
        return self.since if self.state is DECIDED else None

    @property
    def is_draining(self) -> bool:
        return self.state is DRAINING

    @property
    def is_automatic(self) -> bool:
        return self.reason is PauseReason.IDLE_TIMEOUT

    def is_extracting(self, now: datetime) -> bool:
        """Whether the stop waits for the configurations of nodes."""
        waits = self.extraction if self.is_unfinished else None
        return waits is not None and waits.ended_at is None and now < waits.until

    @property
    def is_unfinished(self) -> bool:
        """Whether a stop is requested, at once or after a drain, and not carried out."""
        return self.state in (REQUESTED, DRAINING)


def _enter(pause: Pause, state: PauseState, now: datetime, **changes: Any) -> Pause:
    if (pause.state, state) not in _ROWS:
        allowed = (row.target for row in PAUSE_TRANSITIONS if row.source is pause.state)
        raise IllegalTransition(f"pause {pause.state}", f"pause {state}", allowed)
    begins = {"state": state, "since": now, "until": None, "due_at": None, "extraction": None}
    return replace(pause, **{**begins, **changes})


def decide(pause: Pause, *, at: datetime) -> Pause:
    """Record that an idle check found the worker idle; a second one must confirm it."""
    return pause if pause.decided_at == at else _enter(pause, DECIDED, at, due_at=pause.due_at)


def withdraw_decision(pause: Pause, *, now: datetime) -> Pause:
    """Forget a decision that was not confirmed."""
    return _enter(pause, NONE, now, due_at=pause.due_at) if pause.state is DECIDED else pause


def request_stop(pause: Pause, why: PauseReason, *, is_running: bool, by: str, now: datetime) -> Pause:
    """Request a stop now. A worker that does not run is paused by that: there is nothing to wait for."""
    pause = _uncounted(pause)
    is_automatic = why is PauseReason.IDLE_TIMEOUT
    return _enter(
        pause,
        REQUESTED if is_running else PAUSED,
        now,
        reason=why,
        extraction=pause.extraction if pause.is_unfinished else None,
        last_paused_at=now,
        last_paused_by=by,
        auto_pause_count=pause.auto_pause_count + is_automatic,
        manual_pause_count=pause.manual_pause_count + (not is_automatic),
    )


def request_drain(pause: Pause, why: PauseReason, *, until: datetime, by: str, now: datetime) -> Pause:
    """Request a stop after the sessions have ended; a drain that replaces another began with that one."""
    since = pause.since if pause.state is DRAINING else now
    return _enter(pause, DRAINING, now, since=since, until=until, reason=why, last_paused_by=by)


def carry_out(pause: Pause, *, now: datetime) -> Pause:
    """Record that the worker stops as requested. The pause of a drain counts from here."""
    if not pause.is_unfinished:
        return pause
    paused_at = now if pause.state is DRAINING else pause.last_paused_at
    return _enter(pause, PAUSED, now, last_paused_at=paused_at, extraction=pause.extraction)


def request_extraction(pause: Pause, within: timedelta, *, now: datetime) -> Pause:
    """Have the stop wait for the configurations of nodes, once for each pause."""
    return replace(pause, extraction=Extraction(asked_at=now, until=now + within))


def end_extraction(pause: Pause, *, extracted: int, missed: int, now: datetime) -> Pause:
    """Record what was extracted: the stop goes on."""
    assert pause.extraction is not None
    ended = replace(pause.extraction, ended_at=now, extracted=extracted, missed=missed)
    return replace(pause, extraction=ended)


def stop_outside(pause: Pause, *, by: str, now: datetime) -> Pause:
    """Record that the instance was stopped although the worker should run."""
    why = PauseReason.EXTERNAL
    return _enter(pause, PAUSED, now, reason=why, last_paused_at=now, last_paused_by=by)


def cancel(pause: Pause, *, now: datetime) -> Pause:
    """End an automatic pause because the worker was used. A cancelled pause is not counted."""
    return _enter(_uncounted(pause), NONE, now, reason=None)


def abandon(pause: Pause, *, now: datetime) -> Pause:
    """End what is not carried out, because the desired status is stopped no longer."""
    return pause if pause.state in (NONE, PAUSED) else _enter(pause, NONE, now)


def request_resume(pause: Pause, *, is_running: bool, now: datetime) -> Pause:
    """Request that the worker runs. One that still runs is resumed by that, any other once it runs."""
    pause = replace(pause, manual_resume_count=pause.manual_resume_count + 1)
    if not is_running:
        return carry_out(pause, now=now)
    resumed = pause if pause.state is NONE else _enter(pause, NONE, now)
    return replace(resumed, last_resumed_at=now)


def resume(pause: Pause, *, now: datetime) -> Pause:
    """Record that a paused worker runs as desired again. LCM itself resumed what was stopped outside."""
    if pause.state is not PAUSED:
        return pause
    is_by_itself = pause.reason is PauseReason.EXTERNAL
    return _enter(
        pause, NONE, now, last_resumed_at=now, auto_resume_count=pause.auto_resume_count + is_by_itself
    )


def _uncounted(pause: Pause) -> Pause:
    """The pause with an automatic request that was not carried out taken out of the count."""
    return replace(
        pause, auto_pause_count=pause.auto_pause_count - (pause.state is REQUESTED and pause.is_automatic)
    )
