"""Every error of the client.

ClientError
├── Unreachable            no answer: what was requested may or may not have happened
├── ContextError           it is not known where LCM is, or a file that says so is wrong
├── SignInFailed           the identity provider gives no token, or no more
├── WaitTimedOut           the goal was not reached in time
├── WaitFailed             the goal cannot be reached any more
└── Refused                LCM answered with a problem document; nothing has changed
    ├── NotFound
    ├── AccessDenied       no valid token, or its role does not allow this
    ├── Conflict           not possible in this state; `allowed` names what is
    ├── Invalid            a wrong field or reference; `errors` names the fields
    ├── TooManyRequests
    └── ServerFault        a fault or an outage of LCM; a write may have happened
"""

from collections.abc import Sequence

from lcm.rest.schemas import PROBLEM_TYPE_PREFIX, FieldError, Problem


class ClientError(Exception):
    """Base of every error that the client raises on purpose."""


class Unreachable(ClientError):
    """No answer came back. A requested effect may still happen, unless the request was never sent."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class ContextError(ClientError):
    """The message says what to set."""


class SignInFailed(ClientError):
    """The message says why, and what to do."""


class WaitTimedOut(ClientError):
    """The message says how far it came."""


class WaitFailed(ClientError):
    """The message says why."""


class Refused(ClientError):
    """The problem document (RFC 9457) of the answer; the message is its `detail`."""

    def __init__(self, problem: Problem, retry_after_seconds: float | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def kind(self) -> str:
        """The last part of the problem's type, such as `name-taken`."""
        return self.problem.type.removeprefix(PROBLEM_TYPE_PREFIX)

    @property
    def allowed(self) -> Sequence[str]:
        """The actions that are possible now, if the request was refused because of a status."""
        return self.problem.allowed

    @property
    def errors(self) -> Sequence[FieldError]:
        """The wrong fields."""
        return self.problem.errors


class NotFound(Refused):
    """There is no such resource."""


class AccessDenied(Refused):
    """No valid token, or its role does not allow this."""


class Conflict(Refused):
    """Not possible in the present state."""


class Invalid(Refused):
    """A field is wrong, or names something unknown."""


class TooManyRequests(Refused):
    """Nothing has happened; `retry_after_seconds` says when to try again."""


class ServerFault(Refused):
    """A fault or an outage of LCM. A write may have happened: read before you repeat it."""


_BY_STATUS: dict[int, type[Refused]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    422: Invalid,
    428: Conflict,
    429: TooManyRequests,
}


def refusal_of(problem: Problem, retry_after_seconds: float | None = None) -> Refused:
    """Return the error of a problem document."""
    kind = _BY_STATUS.get(problem.status, ServerFault if problem.status >= 500 else Refused)
    return kind(problem, retry_after_seconds)
