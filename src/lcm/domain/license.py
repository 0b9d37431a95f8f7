"""A worker's license: the requested operation, its progress, the observed status.

A license belongs to a pool that many workers share, so an operation is recorded before it is tried,
counted while it fails, and a deregistration that could not be confirmed is a debt that a person must settle.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from lcm.domain.errors import Conflict

MAX_ATTEMPTS: Final = 5

NOT_REGISTERED: Final = "NOT_REGISTERED"
REFUSED: Final = "FAILED"
FREE_REGISTRATIONS: Final = (NOT_REGISTERED, REFUSED)
"""CML's registration statuses of a server that holds no license and is not about to get one."""

RELEASE_PATIENCE: Final = timedelta(seconds=120)
"""How long a deletion waits for the license: an unreachable CML must not keep a paid instance."""

LOST: Final = "CML reports no license any more: it was deregistered outside LCM, or has expired"


ProductLicense = Literal[
    "CML_Personal", "CML_Personal40", "CML_Enterprise", "CML_Education", "CML_Internal", "CML_NotForResale"
]
"""CML's names of what can be licensed."""
NodeCount = Annotated[int, Meta(ge=0, le=10_000)]
SmartServer = Annotated[str, Meta(pattern=r"^https?://[^\s@]{1,255}$")]
ProxyHost = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class LicenseTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is set on a server for its license; None is left as CML has it."""

    product_license: ProductLicense | None = None
    node_count: NodeCount | None = None
    """Nodes beyond those of the product."""
    ssms_url: SmartServer | None = None
    """The license server; without one CML asks Cisco's."""
    proxy_host: ProxyHost | None = None
    proxy_port: Port | None = None

    def over(self, others: "LicenseTerms") -> "LicenseTerms":
        """These terms, and where they say nothing the others."""
        mine = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return replace(others, **mine)


class LicenseStatus(StrEnum):
    """The license status, as last reported."""

    UNLICENSED = "unlicensed"
    REGISTERED = "registered"
    DEREGISTERED = "deregistered"
    FAILED = "failed"


class LicenseOperation(StrEnum):
    """A requested license operation."""

    REGISTER = "register"
    DEREGISTER = "deregister"


class License(msgspec.Struct, frozen=True, kw_only=True):
    """The license of one worker. Its token is a secret and not in here."""

    declared: bool = False
    """The worker is to be licensed: if it turns out not to be, it is registered without a request."""
    status: LicenseStatus = LicenseStatus.UNLICENSED
    tier: str | None = None
    pending_operation: LicenseOperation | None = None
    token_ref: str | None = None
    """The name of the pending registration's token in the vault."""
    operation_in_progress: bool = False
    attempts: int = 0
    last_error: str = ""
    changed_at: datetime | None = None
    terms: LicenseTerms = LicenseTerms()
    """Of the last request that named any."""
    asked_for: bool = False
    """A registration was requested from CML, which has not reported since that it holds none."""
    deregistration_asked: bool = False
    """A deregistration was requested from CML and its answer not reported: Cisco may not know of it."""

    @property
    def may_be_held(self) -> bool:
        """Whether the pool may count one for this worker: a requested registration may have succeeded."""
        return self.status is LicenseStatus.REGISTERED or self.asked_for


def request_operation(
    license: License,
    operation: LicenseOperation,
    *,
    token_ref: str | None = None,
    may_be_held: bool | None = None,
    terms: LicenseTerms | None = None,
    now: datetime,
) -> License:
    """Record a requested operation; the newest request replaces one that has not begun.

    `may_be_held` is what CML reported besides; None: only what LCM requested counts.
    """
    if license.operation_in_progress and license.pending_operation is not operation:
        raise Conflict(
            f"a license operation ({license.pending_operation}) is in progress; wait until it has ended"
        )
    if operation is LicenseOperation.DEREGISTER and not (may_be_held or license.may_be_held):
        return replace(
            license, declared=False, pending_operation=None, token_ref=None, attempts=0, changed_at=now
        )
    return replace(
        license,
        declared=operation is LicenseOperation.REGISTER,
        pending_operation=operation,
        token_ref=token_ref,
        terms=terms or license.terms,
        attempts=0,
        last_error="",
        changed_at=now,
    )


def is_due(license: License) -> bool:
    """Whether the worker is to be registered without a new request (D-12).

    One whose registration failed is not: an operator must look into it first.
    """
    return (
        license.declared and license.pending_operation is None and license.status is LicenseStatus.UNLICENSED
    )


def deregister(license: License, *, must_ask: bool, now: datetime) -> License:
    """Request the deregistration of a worker that is being deleted, whatever else was requested.

    A server that `must_ask` says may hold a license is deregistered too, also if LCM did not register it.
    """
    is_needed = must_ask or license.may_be_held
    if not is_needed and license.changed_at is None:
        return license
    return replace(
        license,
        pending_operation=LicenseOperation.DEREGISTER if is_needed else None,
        operation_in_progress=False,
        attempts=0,
        changed_at=now,
    )


def lose_instance(license: License, *, is_final: bool, now: datetime) -> License:
    """Reset the license of a terminated instance; a requested registration is kept for the next one."""
    if license == License(declared=license.declared, terms=license.terms):
        return license
    is_requested = license.pending_operation is LicenseOperation.REGISTER and not is_final
    return License(
        declared=license.declared,
        terms=license.terms,
        pending_operation=license.pending_operation if is_requested else None,
        token_ref=license.token_ref if is_requested else None,
        last_error="the instance is gone" if license.may_be_held else license.last_error,
        changed_at=now,
    )


def observe(license: License, *, is_held: bool, is_free: bool, tier: str | None, now: datetime) -> License:
    """Follow what CML reports: a license that was registered outside LCM is held, one that is gone is not.

    An operation in progress changes that by itself.
    """
    if is_held and not license.may_be_held:
        registered = LicenseStatus.REGISTERED
        return replace(license, status=registered, tier=tier, asked_for=True, changed_at=now)
    if is_free and license.may_be_held and license.pending_operation is None:
        unlicensed = LicenseStatus.UNLICENSED
        return replace(
            license, status=unlicensed, tier=None, asked_for=False, last_error=LOST, changed_at=now
        )
    return license


def begin(license: License, operation: LicenseOperation, *, now: datetime) -> License:
    """Record an attempt, right before the controller calls CML."""
    _expect(license, operation)
    return replace(
        license,
        operation_in_progress=True,
        attempts=license.attempts + 1,
        asked_for=license.asked_for or operation is LicenseOperation.REGISTER,
        deregistration_asked=license.deregistration_asked or operation is LicenseOperation.DEREGISTER,
        changed_at=now,
    )


def complete(
    license: License, operation: LicenseOperation, *, tier: str | None, was_held: bool = True, now: datetime
) -> License:
    """Record CML's confirmation. Repeating it changes nothing.

    The deregistration of a server that turned out to hold no license leaves the status as it was.
    """
    done = LicenseStatus.REGISTERED if operation is LicenseOperation.REGISTER else LicenseStatus.DEREGISTERED
    if operation is LicenseOperation.DEREGISTER and not (was_held or license.may_be_held):
        done = license.status
    if license.pending_operation is not operation and license.status is done:
        return license
    _expect(license, operation)
    return replace(
        license,
        status=done,
        tier=tier if done is LicenseStatus.REGISTERED else None,
        pending_operation=None,
        token_ref=None,
        operation_in_progress=False,
        attempts=0,
        last_error="",
        changed_at=now,
        asked_for=done is LicenseStatus.REGISTERED,
        deregistration_asked=False,
    )


def fail(
    license: License,
    operation: LicenseOperation,
    *,
    reason: str,
    is_free: bool = False,
    give_up: bool = False,
    now: datetime,
) -> License:
    """Record a failed attempt; after the last one the operation is FAILED and an operator must look into it.

    With `is_free` CML holds no license, with `give_up` it becomes a debt: neither is held any more.
    """
    if not give_up:
        _expect(license, operation)
    failed = replace(
        license,
        operation_in_progress=False,
        last_error=reason,
        changed_at=now,
        asked_for=license.asked_for and not (is_free or give_up),
        deregistration_asked=license.deregistration_asked and not give_up,
    )
    if license.attempts < MAX_ATTEMPTS and not give_up:
        return failed
    return replace(failed, status=LicenseStatus.FAILED, pending_operation=None, token_ref=None, attempts=0)


def _expect(license: License, operation: LicenseOperation) -> None:
    if license.pending_operation is not operation:
        raise Conflict(f"no {operation} is pending for this worker; read its record again")


class LicenseDebt(msgspec.Struct, frozen=True, kw_only=True):
    """A license that the pool may still count for a worker that is gone."""

    worker_id: str
    worker_name: str
    reason: str
    since: datetime
    settled_by: str | None = None
    settled_at: datetime | None = None
