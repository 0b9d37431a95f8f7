"""Worker records of form 1, in which all facts lay flat, are translated to form 2, which has parts.

The stored record is rewritten by its next change. Form 1 kept the state of a pause in timestamps: what they
meant is read here, and nowhere else.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

Json = dict[str, Any]

_PARTS = {
    "launch": {
        "generation": "launch_generation",
        "unattended": "unattended_launches",
        "intent": "launch",
    },
    "instance": {
        "id": "ec2_instance_id",
        "type": "instance_type",
        "ami_id": "ami_id",
        "ami_name": "ami_name",
        "ami_description": "ami_description",
        "ami_creation_date": "ami_creation_date",
        "public_ip": "public_ip",
        "private_ip": "private_ip",
    },
    "cml": {
        "version": "cml_version",
        "is_ready": "cml_ready",
        "certificate_sha256": "cml_certificate_sha256",
        "login": "cml_login",
        "system_info": "cml_system_info",
        "health": "cml_health",
        "license": "cml_license",
        "labs_count": "labs_count",
        "lab_discovery_requested_at": "lab_discovery_requested_at",
    },
    "connection": {
        "status": "ws_status",
        "reason": "ws_reason",
        "connected_at": "ws_connected_at",
        "disconnected_at": "ws_disconnected_at",
        "published": "ws_told_connected",
        "mark": "ws_mark",
    },
    "activity": {
        "last_at": "last_activity_at",
        "checked_at": "last_activity_check_at",
        "recent_events": "recent_activity_events",
        "listed_since": "activity_listed_since",
        "mark": "activity_mark",
    },
    "pause": {
        "reason": "pause_reason",
        "due_at": "target_pause_at",
        "last_paused_at": "last_paused_at",
        "last_paused_by": "last_paused_by",
        "last_resumed_at": "last_resumed_at",
        "auto_pause_count": "auto_pause_count",
        "manual_pause_count": "manual_pause_count",
        "auto_resume_count": "auto_resume_count",
        "manual_resume_count": "manual_resume_count",
    },
}
_MOVED = {name for fields in _PARTS.values() for name in fields.values()}
_MOVED |= {"ws_connected", "pause_decided_at", "drain_started_at", "drain_deadline_at"}


def current_form(body: bytes) -> bytes:
    """Return the record in the present form; one that is in it already is returned as it is."""
    record: Json = msgspec.json.decode(body)
    if "form" in record:
        return body
    kept = {name: value for name, value in record.items() if name not in _MOVED}
    parts: dict[str, Json] = {
        part: {name: record[old] for name, old in fields.items() if old in record}
        for part, fields in _PARTS.items()
    }
    parts["pause"] |= _pause_state(record)
    return msgspec.json.encode({"form": 2, **kept, **parts})


def _pause_state(record: Json) -> Json:
    """What the timestamps of form 1 say about the pause."""
    paused_at, decided_at = record.get("last_paused_at"), record.get("pause_decided_at")
    if decided_at is not None:
        return {"state": "decided", "since": decided_at}
    if record["status"] not in ("running", "draining"):
        return {"state": "paused", "since": paused_at} if _is_unresumed(record) else {}
    if record["desired_status"] != "stopped":
        return {}
    deadline = record.get("drain_deadline_at")
    if record["status"] == "draining" and deadline != paused_at:
        return {"state": "draining", "since": record.get("drain_started_at"), "until": deadline}
    is_requested = _is_unresumed(record) and not _was_started_outside(record)
    return {"state": "requested" if is_requested else "paused", "since": paused_at}


def _is_unresumed(record: Json) -> bool:
    return _time(record.get("last_paused_at")) > _time(record.get("last_resumed_at"))


def _was_started_outside(record: Json) -> bool:
    """Whether it runs since it was stopped and started again outside LCM."""
    arrivals = [line for line in record.get("state_history", ()) if line["from"] != line["to"]]
    if not arrivals or arrivals[-1]["from"] != "stopped":
        return False
    return _time(arrivals[-1]["at"]) > _time(record.get("last_paused_at"))


def _time(stamp: str | None) -> datetime:
    return msgspec.convert(stamp, datetime) if stamp else _NEVER


_NEVER = datetime.min.replace(tzinfo=UTC)
