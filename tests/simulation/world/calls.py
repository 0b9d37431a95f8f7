"""Records of calls that leave simulated processes, and the violation of an invariant."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Role = Literal["controller", "lablets", "scheduler", "plane", "user"]


class Call(NamedTuple):
    """One call that left a process."""

    n: int
    at: float
    process: str
    role: Role
    site: str
    nth: int
    subject: str
    state: str
    """The abstract state it met: status and desired status of its worker."""
    mutates: bool
    fault: str

    def __str__(self) -> str:
        mark = f"  !! {self.fault}" if self.fault else ""
        what = f"{self.site:24} {self.subject:38} {self.state}{mark}"
        return f"{self.n:5} {self.at:10.3f} {self.process:14} {what}"


class Answer(NamedTuple):
    """An answer of the control plane; the headers are the request's."""

    sender: str
    method: str
    path: str
    headers: Mapping[str, str]
    sent: bytes | None
    status: int
    body: bytes


class Violation(Exception):
    """An invariant did not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(invariant, detail)
        self.invariant = invariant
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"
