"""Whose a listed lab is, and whether LCM removes it: pure rules over the lab, its marker and its session."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from lcm.domain.lablet.listed_lab import LabKind, LabMark, LeakReason
from lcm.domain.lablet.session import LabletSession
from lcm.domain.telemetry import LabRecord

LEAKED_FOR: Final = timedelta(minutes=10)
"""So long every full listing must have shown a lab leaked before it is removed."""
DUPLICATE_FOR: Final = timedelta(seconds=60)
MISSING_FOR: Final = timedelta(seconds=60)
"""Two full listings this far apart prove that a lab is gone; one may be older than its import."""
MAX_LEAKED: Final = 5
MAX_UNKNOWN_SHARE: Final = 0.2
AT_REST: Final = "DEFINED_ON_CORE"

ONLY_REPORTED: Final = "LEAKED_LABS is set to report"
_IN_USE: Final = "it is no copy that an import left: it was started"
_RECORD_OLDER: Final = "the records of LCM are older than the lab, as after a restore of a backup"


class LeakPolicy(StrEnum):
    """What follows for a leaked lab."""

    REMOVE = "remove"
    REPORT = "report"


class Standing(NamedTuple):
    """Whose a lab is."""

    kind: LabKind
    session_id: str | None = None
    leak: LeakReason | None = None


FOREIGN: Final = Standing(LabKind.FOREIGN)
ADOPTED: Final = Standing(LabKind.ADOPTED)


def stand(
    lab_id: str,
    mark: LabMark | None,
    instance_id: str | None,
    *,
    fleet_id: str,
    recorded_by: LabletSession | None,
    marked: LabletSession | None,
) -> Standing:
    """Judge a lab of this instance.

    `recorded_by` is the live session that has recorded its id, `marked` the session that its marker names.
    A recorded id counts alone. Otherwise only a whole marker of this fleet makes a lab LCM's.
    """
    if recorded_by is not None and _owns(recorded_by, lab_id, instance_id):
        return Standing(LabKind.SESSION, recorded_by.id)
    if mark is None or mark.fleet_id != fleet_id:
        return FOREIGN
    leak = _leak(lab_id, mark, instance_id, marked)
    return Standing(LabKind.SESSION if leak is None else LabKind.LEAKED, mark.session_id, leak)


def _owns(session: LabletSession, lab_id: str, instance_id: str | None) -> bool:
    lab = session.lab
    is_recorded = lab is not None and (lab.lab_id, lab.instance_id) == (lab_id, instance_id)
    return is_recorded and not session.is_ended


def _leak(
    lab_id: str, mark: LabMark, instance_id: str | None, session: LabletSession | None
) -> LeakReason | None:
    """Why the lab is no session's. Beside the recorded lab of an import another one is a duplicate for ever:
    LCM never started it, so a person who did may still need it after the session has ended."""
    if session is None:
        return LeakReason.SESSION_UNKNOWN
    lab = session.lab
    if lab is not None and lab.lab_id not in (None, lab_id):
        is_same_import = (lab.generation, lab.instance_id) == (mark.generation, instance_id)
        if is_same_import:
            return LeakReason.DUPLICATE
    if session.is_ended:
        return LeakReason.SESSION_ENDED
    if mark.generation > session.lab_generation:
        return LeakReason.RECORD_OLDER
    is_under_way = lab is not None and lab.lab_id is None
    return None if is_under_way else LeakReason.SESSION_MOVED_ON


def why_kept(lab: LabRecord, of_worker: Iterable[LabRecord], policy: LeakPolicy) -> str:
    """Why LCM does not remove a leaked lab by itself; empty if it does, once that is confirmed.

    Records restored from a backup know nothing of sessions that were created later: labs of live classes
    then seem leaked. So labs of unknown sessions are left to people if they are more than a few.
    """
    if policy is LeakPolicy.REPORT:
        return ONLY_REPORTED
    if lab.leak is LeakReason.RECORD_OLDER:
        return _RECORD_OLDER
    if lab.leak is LeakReason.DUPLICATE and lab.state != AT_REST:
        return _IN_USE
    labs = list(of_worker)
    leaked = [each for each in labs if each.kind is LabKind.LEAKED]
    if len(leaked) > MAX_LEAKED:
        return f"{len(leaked)} labs of the worker are leaked at once, more than {MAX_LEAKED}"
    unknown = sum(each.leak is LeakReason.SESSION_UNKNOWN for each in leaked)
    if lab.leak is LeakReason.SESSION_UNKNOWN and unknown > MAX_UNKNOWN_SHARE * len(labs):
        return (
            f"of {len(labs)} labs of the worker {unknown} are of sessions that LCM does not know,"
            f" more than {MAX_UNKNOWN_SHARE:.0%}"
        )
    return ""


def confirmed_at(lab: LabRecord) -> datetime | None:
    """When a full listing that still shows the lab leaked confirms it; None if none has shown it leaked."""
    if lab.leaked_since is None:
        return None
    return lab.leaked_since + (DUPLICATE_FOR if lab.leak is LeakReason.DUPLICATE else LEAKED_FOR)


def is_leak_confirmed(lab: LabRecord, now: datetime) -> bool:
    """Whether a lab that the present full listing shows leaked has been so long enough."""
    at = confirmed_at(lab)
    return at is not None and now >= at


def seconds_to_confirmation(labs: Iterable[LabRecord], now: datetime) -> float | None:
    """After how long a full listing confirms the next of these leaked labs; None if none waits for that."""
    moments = [at for lab in labs if (at := confirmed_at(lab)) is not None and at > now]
    return (min(moments) - now).total_seconds() if moments else None
