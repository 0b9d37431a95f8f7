"""What the steps of all kinds have in common."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from lcm.domain.errors import RequestError
from lcm.rest.plans import FieldChange, PlannedRequest, PlannedStep, StepAction
from lcm.rest.schemas import FieldError


def planned_request(
    method: str, path: str, body: Any, *about: object, if_match: str | None = None
) -> PlannedRequest:
    """Return the request. Its key follows from its content and from what it is `about`.

    What is named there makes it another request when it is due again, such as the record before.
    """
    content = msgspec.json.encode((method, path, body, about))
    key = f"apply-{hashlib.sha256(content).hexdigest()[:32]}"
    return PlannedRequest(
        method=method,
        path=path,
        body=msgspec.to_builtins(body),
        idempotency_key=key,
        if_match=if_match,
    )


def refused(kind: str, name: str, *errors: FieldError) -> PlannedStep:
    """Return the step that says what is wrong with a document."""
    return PlannedStep(kind=kind, name=name, action=StepAction.REFUSE, errors=errors)


def judged(field: str, judge: Callable[[], object]) -> list[FieldError]:
    """Return why LCM would refuse what this decides; nothing if it would not."""
    try:
        judge()
    except RequestError as error:
        return [FieldError(field=field, message=str(error))]
    return []


def changes_of(field: str, before: Any, after: Any) -> list[FieldChange]:
    """Return the parts of a field that differ: those of mappings and structs one by one."""
    if before == after:
        return []
    parts = [_parts(value) for value in (before, after)]
    if parts[0] is None or parts[1] is None:
        plain = [msgspec.to_builtins(value) for value in (before, after)]
        return [FieldChange(field=field, before=plain[0], after=plain[1])]
    names = dict.fromkeys((*parts[0], *parts[1]))
    return [
        change
        for name in names
        for change in changes_of(f"{field}.{name}", parts[0].get(name), parts[1].get(name))
    ]


def _parts(value: Any) -> dict[str, Any] | None:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return value if isinstance(value, dict) else None
