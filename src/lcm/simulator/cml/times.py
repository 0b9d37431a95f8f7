"""The time format of CML's objects: with a zone, to the second."""

from datetime import UTC, datetime


def shown(at: float) -> str:
    """Unix seconds as `2026-05-03T10:02:11+00:00`."""
    return datetime.fromtimestamp(int(at), UTC).isoformat()
