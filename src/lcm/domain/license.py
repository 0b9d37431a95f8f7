"""A worker's license: what is wished, what is under way, what is true.

A license belongs to a pool that many workers share, so an operation is written down before it is tried,
counted while it fails, and a deregistration that could not be confirmed is a debt somebody must settle.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from lcm.domain.errors import Conflict

MAX_ATTEMPTS: Final = 5


class LicenseStatus(StrEnum):
    """What is true."""

    UNLICENSED = "unlicensed"
    REGISTERED = "registered"
    DEREGISTERED = "deregistered"
    FAILED = "failed"


class LicenseOperation(StrEnum):
    """What is wished."""

    REGISTER = "register"
    DEREGISTER = "deregister"


class License(msgspec.Struct, frozen=True, kw_only=True):
    """The license of one worker. Its token is a secret and not in here."""

    declared: bool = False
    """Somebody wants it licensed: should it turn out not to be, it is registered without being asked."""
    status: LicenseStatus = LicenseStatus.UNLICENSED
    tier: str | None = None
    pending_operation: LicenseOperation | None = None
    token_ref: str | None = None
    """Under which name the token of the pending registration is kept in the vault."""
    operation_in_progress: bool = False
    attempts: int = 0
    last_error: str = ""
    changed_at: datetime | None = None
    asked_for: bool = False
    """CML was asked to register, and has not said since that it holds none."""
    deregistration_asked: bool = False
    """CML was asked to deregister, and its answer has not been reported: Cisco may not have been told."""

    @property
    def may_be_held(self) -> bool:
        """Whether the pool may count one for this worker: what CML was asked for may have come about."""
        return self.status is LicenseStatus.REGISTERED or self.asked_for


def wish(
    license: License, operation: LicenseOperation, *, token_ref: str | None = None, now: datetime
) -> License:
    """Write down what is to be done; the newest wish replaces one that has not begun."""
    if license.operation_in_progress and license.pending_operation is not operation:
        raise Conflict(
            f"a license operation ({license.pending_operation}) is under way; wait until it is over"
        )
    if operation is LicenseOperation.DEREGISTER and not license.may_be_held:
        return replace(
            license, declared=False, pending_operation=None, token_ref=None, attempts=0, changed_at=now
        )
    return replace(
        license,
        declared=operation is LicenseOperation.REGISTER,
        pending_operation=operation,
        token_ref=token_ref,
        attempts=0,
        last_error="",
        changed_at=now,
    )


def is_due(license: License) -> bool:
    """Whether it is to be registered although nobody asked just now (D-12).

    One that failed is not: whoever declared it must look first.
    """
    return (
        license.declared and license.pending_operation is None and license.status is LicenseStatus.UNLICENSED
    )


def give_back(license: License, *, now: datetime) -> License:
    """The worker goes: what it may hold is freed first, whatever else was wished."""
    return replace(
        license,
        pending_operation=LicenseOperation.DEREGISTER if license.may_be_held else None,
        operation_in_progress=False,
        attempts=0,
        changed_at=now,
    )


def lose(license: License, *, is_final: bool, now: datetime) -> License:
    """The machine is gone, and what it held with it; another one may still be licensed as wished."""
    if license == License(declared=license.declared):
        return license
    is_wished = license.pending_operation is LicenseOperation.REGISTER and not is_final
    return License(
        declared=license.declared,
        pending_operation=license.pending_operation if is_wished else None,
        token_ref=license.token_ref if is_wished else None,
        last_error="its machine is gone" if license.may_be_held else license.last_error,
        changed_at=now,
    )


def begin(license: License, operation: LicenseOperation, *, now: datetime) -> License:
    """The controller is about to ask CML."""
    _expect(license, operation)
    return replace(
        license,
        operation_in_progress=True,
        attempts=license.attempts + 1,
        asked_for=license.asked_for or operation is LicenseOperation.REGISTER,
        deregistration_asked=license.deregistration_asked or operation is LicenseOperation.DEREGISTER,
        changed_at=now,
    )


def complete(license: License, operation: LicenseOperation, *, tier: str | None, now: datetime) -> License:
    """CML confirmed it. Said twice, it changes nothing."""
    done = LicenseStatus.REGISTERED if operation is LicenseOperation.REGISTER else LicenseStatus.DEREGISTERED
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
    """One attempt failed; after the last one the wish is given up and a person must look.

    CML holds none if it `is_free`, and what is given up is owed: neither is held any more.
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
    """A license that a worker may still hold in the pool although the worker is gone."""

    worker_id: str
    worker_name: str
    reason: str
    since: datetime
    settled_by: str | None = None
    settled_at: datetime | None = None
