"""Errors as RFC 9457 problem documents."""

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from lcm.rest.schemas import PROBLEM_TYPE_PREFIX, FieldError, Problem

MEDIA_TYPE = "application/problem+json"


def problem(
    status: int,
    kind: str,
    title: str,
    detail: str,
    *,
    allowed: Sequence[str] = (),
    errors: Sequence[FieldError] = (),
) -> Response:
    """An answer that says what is wrong and what to do."""
    body = Problem(
        type=PROBLEM_TYPE_PREFIX + kind,
        title=title,
        status=status,
        detail=detail,
        allowed=list(allowed),
        errors=list(errors),
    )
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def unexpected_problem() -> Response:
    """A fault of ours: what it was is for the log, not for the caller."""
    detail = "this is a fault of LCM and is in its log; check the outcome before you send it again"
    return problem(500, "internal", "Something went wrong", detail)
