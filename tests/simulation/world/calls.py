"""What is known of a call that left a simulated process, and what is said when something did not hold."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Role = Literal["controller", "plane", "user"]


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
    """The abstract state it met: status and wish of the worker it is about."""
    mutates: bool
    fault: str

    def __str__(self) -> str:
        mark = f"  !! {self.fault}" if self.fault else ""
        what = f"{self.site:24} {self.subject:38} {self.state}{mark}"
        return f"{self.n:5} {self.at:10.3f} {self.process:14} {what}"


class Answer(NamedTuple):
    """What the control plane answered to a request; the headers are the request's."""

    sender: str
    method: str
    path: str
    headers: Mapping[str, str]
    sent: bytes | None
    status: int
    body: bytes


class Violation(Exception):
    """Something that must always hold did not."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(invariant, detail)
        self.invariant = invariant
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"
