"""Every error of the domain.

    LcmError
    ├── TransientError            expected to pass; repeat with backoff
    │   ├── Unreachable           no answer: the effect may or may not have happened
    │   │   └── NoCml             a server answers, but not as a CML that has booted
    │   ├── Throttled             the other side limits our rate
    │   ├── CapacityShortage      EC2 has no capacity of this instance type right now
    │   ├── QuotaExceeded         an account limit is reached; a person must raise it or free something
    │   ├── CredentialsRefused    our credentials are not accepted: nothing may be concluded from it
    │   └── WrongInstanceState    the instance is in transition to another state; observe it again
    ├── PermanentError            repeating cannot succeed; an operator must change something
    │   ├── TemplateMissing
    │   ├── RegionNotConfigured
    │   ├── ImageNotFound
    │   ├── InstanceTypeUnfit    the template's instance type cannot run CML as it says
    │   ├── LaunchRefused         EC2 refuses these launch parameters; nothing was launched
    │   ├── TokenMismatch         the client token was used with other parameters
    │   ├── CertificateChanged    a worker presents another certificate than the pinned one
    │   └── LabRefused            CML refuses what was requested of a lab; nothing has changed
    ├── LaunchLapsed              the instance of a client token is terminated: a new generation is due
    └── RequestError              the request cannot be carried out
        ├── NotFound
        ├── Conflict              the record changed since it was read
        ├── PreconditionFailed    the record is not at the version that the caller requires
        ├── PreconditionRequired  the caller must name a version
        ├── NameTaken
        ├── InstanceTaken         another worker has this instance
        ├── KeyReused             the idempotency key was used for another request
        ├── IllegalTransition     the table has no such row
        ├── ActionRefused         the action is not allowed in this status
        ├── TooSoon               repeated before the minimum interval has passed
        ├── MomentPassed          the requested time is in the past
        ├── UnknownReference      a template or region that is not configured
        ├── InvalidTopology       a topology cannot be run; every mistake has its line
        ├── InvalidDefinition     a lablet definition contradicts itself or its topology
        ├── InvalidTimeslot       a timeslot ends before it begins, is over, or is too long
        ├── ImpossibleNeeds       no worker and no template can ever run the lab
        ├── NoCapacityInSlot      the timeslot has no room, and overbooking is refused
        ├── NextBooking           another session counts on the room that an extension would take
        ├── NoFreePort            the ports that a lab needs are not free on the worker
        ├── PlacementRefused      the worker cannot take the session; the label of the filter says why
        └── Fenced                a newer leader exists; the caller must stop acting

Only adapters translate foreign exceptions into these; only loops catch them all.
"""

from collections.abc import Iterable
from typing import NamedTuple


class LcmError(Exception):
    """Base of every error this project raises on purpose."""


class TransientError(LcmError):
    """Expected to pass; repeat with backoff."""


class Unreachable(TransientError):
    """No answer came back. A requested effect may still happen."""


class NoCml(Unreachable):
    """Something answers at the address, but no CML that has booted."""


class Throttled(TransientError):
    """The other side limits our rate."""


class CapacityShortage(TransientError):
    """EC2 has no capacity of this instance type in this zone at the moment."""


class QuotaExceeded(TransientError):
    """A limit of the account is reached."""


class CredentialsRefused(TransientError):
    """The cloud does not accept our identity; observations made with it mean nothing."""


class WrongInstanceState(TransientError):
    """The instance cannot do that from the state it is in now."""


class PermanentError(LcmError):
    """Repeating the same request cannot succeed."""


class TemplateMissing(PermanentError):
    """The worker names a template that does not exist."""


class RegionNotConfigured(PermanentError):
    """The worker's region has no network configuration."""


class ImageNotFound(PermanentError):
    """No AMI matches the template's pattern in this region."""


class InstanceTypeUnfit(PermanentError):
    """The instance type cannot run virtual machines, and the template does not allow that."""


class LaunchRefused(PermanentError):
    """EC2 rejects the launch parameters themselves; nothing was launched."""


class TokenMismatch(PermanentError):
    """The client token was used before with other parameters: an instance may exist."""


class CertificateChanged(PermanentError):
    """A worker presents a certificate other than the pinned one; `shown_sha256` is its fingerprint, if it may
    be accepted instead."""

    def __init__(self, detail: str, shown_sha256: str | None = None) -> None:
        self.shown_sha256 = shown_sha256
        super().__init__(detail)


class LabRefused(PermanentError):
    """CML refuses a request about a lab; `description` is CML's own text."""

    def __init__(self, status: int, description: str) -> None:
        self.status = status
        self.description = description
        super().__init__(f"CML refuses ({status}): {description}")


class LaunchLapsed(LcmError):
    """The client token belongs to an instance that no longer exists."""


class RequestError(LcmError):
    """The request cannot be carried out; the message says what to do instead."""


class NotFound(RequestError):
    """The named resource does not exist."""


class Conflict(RequestError):
    """The record is no longer at the version the caller read."""


class PreconditionFailed(RequestError):
    """The record is not at the version that the caller named."""


class PreconditionRequired(RequestError):
    """The change could overwrite a version that the caller has not read."""


class NotReadyYet(RequestError):
    """What is requested exists only later; the message says when, or what to follow."""


class NameTaken(RequestError):
    """Another live resource holds a name that must be unique."""


class InstanceTaken(RequestError):
    """The instance belongs to another worker."""


class KeyReused(RequestError):
    """The idempotency key belongs to a different request."""


class TooSoon(RequestError):
    """The same request was accepted a moment ago."""

    def __init__(self, detail: str, retry_after_seconds: float) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class UnknownReference(RequestError):
    """The request names a template or region that is not configured."""


class InvalidAddress(RequestError):
    """The reported address cannot be that of a worker."""


class MomentPassed(RequestError):
    """The request would end before it begins."""


class Fenced(RequestError):
    """The caller's leadership epoch is over."""


class IllegalTransition(RequestError):
    """The transition table has no such row; `allowed` names the ones it has."""

    def __init__(self, current: str, wanted: str, allowed: Iterable[str]) -> None:
        self.current = current
        self.wanted = wanted
        self.allowed = sorted(allowed)
        ways = ", ".join(self.allowed) or "none, it is final"
        super().__init__(f"cannot change from {current} to {wanted}; allowed: {ways}")


class ActionRefused(RequestError):
    """The worker's status does not allow the action; `allowed` names the actions that it allows."""

    def __init__(self, action: str, status: str, allowed: Iterable[str]) -> None:
        self.current = status
        self.wanted = action
        self.allowed = sorted(allowed)
        ways = ", ".join(self.allowed) or "none, it is terminated"
        super().__init__(f"cannot {action} a worker that is {status}; possible actions: {ways}")


class TopologyMistake(NamedTuple):
    """One thing to correct in a topology, or to know about it."""

    line: int
    node: str | None
    """The label of the node, where it is about one."""
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}: node {self.node}" if self.node else f"line {self.line}"
        return f"{place}: {self.message}"


class InvalidTopology(RequestError):
    """The topology cannot be run; `mistakes` has all of them, in the order of their lines."""

    def __init__(self, mistakes: Iterable[TopologyMistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line))
        super().__init__("; ".join(map(str, self.mistakes)))


class InvalidDefinition(RequestError):
    """The lablet definition cannot be stored; the message says what to change."""


class InvalidTimeslot(RequestError):
    """The timeslot cannot be booked; the message says what to change."""


class ImpossibleNeeds(RequestError):
    """No worker that exists and no template can ever meet the needs."""


class NoCapacityInSlot(RequestError):
    """The timeslot has no room; the message names the nearest ones that have."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"no_capacity_in_slot: {detail}")


class NextBooking(RequestError):
    """Another session counts on the room; the message names the time."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"next_booking: {detail}")


class NoFreePort(RequestError):
    """The worker has not the ports that the lab needs."""


class PlacementRefused(RequestError):
    """The worker cannot take the session now; `label` is the filter that refused it."""

    def __init__(self, label: str, detail: str) -> None:
        self.label = label
        super().__init__(f"{label}: {detail}")
