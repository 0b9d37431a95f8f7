"""A license operation is written down, tried, counted, and ends in a truth."""

import pytest
from msgspec.structs import replace

from lcm.domain.errors import Conflict
from lcm.domain.license import (
    MAX_ATTEMPTS,
    License,
    LicenseOperation,
    LicenseStatus,
    begin,
    complete,
    fail,
    request_operation,
)
from support.core import NOON

REGISTER, DEREGISTER = LicenseOperation.REGISTER, LicenseOperation.DEREGISTER
UNLICENSED = License()
REGISTERED = License(status=LicenseStatus.REGISTERED, tier="CML_Enterprise")


def requested(license: License = UNLICENSED, operation: LicenseOperation = REGISTER) -> License:
    return request_operation(license, operation, now=NOON)


def test_a_request_is_pending_until_it_is_completed() -> None:
    license = requested()
    assert (license.status, license.pending_operation) == (LicenseStatus.UNLICENSED, REGISTER)


def test_a_completed_registration_is_true() -> None:
    license = complete(begin(requested(), REGISTER, now=NOON), REGISTER, tier="CML_Enterprise", now=NOON)
    assert (license.status, license.tier) == (LicenseStatus.REGISTERED, "CML_Enterprise")
    assert (license.pending_operation, license.operation_in_progress) == (None, False)


def test_a_failure_keeps_the_request_until_the_last_attempt() -> None:
    license = requested()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert license.pending_operation is REGISTER
        license = fail(begin(license, REGISTER, now=NOON), REGISTER, reason=f"no {attempt}", now=NOON)
    assert (license.status, license.pending_operation) == (LicenseStatus.FAILED, None)
    assert license.last_error == "no 5"


def test_a_completion_said_twice_changes_nothing() -> None:
    done = complete(begin(requested(), REGISTER, now=NOON), REGISTER, tier=None, now=NOON)
    assert complete(done, REGISTER, tier=None, now=NOON) is done


def test_a_completion_without_a_request_is_refused() -> None:
    with pytest.raises(Conflict, match="no deregister is pending"):
        complete(requested(), DEREGISTER, tier=None, now=NOON)


def test_an_operation_under_way_is_not_replaced_by_its_opposite() -> None:
    under_way = begin(requested(), REGISTER, now=NOON)
    with pytest.raises(Conflict, match="wait until it has ended"):
        request_operation(under_way, DEREGISTER, now=NOON)


def test_deregistering_what_is_not_registered_needs_nothing() -> None:
    assert requested(UNLICENSED, DEREGISTER).pending_operation is None


def test_a_registered_license_can_be_deregistered() -> None:
    license = requested(REGISTERED, DEREGISTER)
    license = complete(begin(license, DEREGISTER, now=NOON), DEREGISTER, tier=None, now=NOON)
    assert (license.status, license.tier) == (LicenseStatus.DEREGISTERED, None)


def test_a_new_request_starts_with_fresh_attempts() -> None:
    tired = replace(requested(), attempts=4, last_error="no")
    assert (requested(tired).attempts, requested(tired).last_error) == (0, "")
