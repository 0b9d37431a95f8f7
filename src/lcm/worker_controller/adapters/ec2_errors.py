"""EC2's error codes as errors of the domain: which ones are transient, and which need an operator.

docs/how-to/read-a-failed-worker.md describes what LCM does about each kind.
"""

from collections.abc import Mapping
from typing import Final

from lcm.domain import errors

LONGEST_MESSAGE: Final = 300
"""EC2 appends kilobytes of encoded policy to some refusals, too much for a status reason."""


class UnknownInstance(errors.TransientError):
    """EC2 does not know the id, or not yet."""


_CODES: Final[Mapping[type[errors.LcmError], tuple[str, ...]]] = {
    errors.Throttled: (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "SlowDown",
        "Unavailable",
        "ServiceUnavailable",
    ),
    errors.CapacityShortage: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientVolumeCapacity",
        "InsufficientFreeAddressesInSubnet",
        "ReservationCapacityExceeded",
        "Unsupported",
    ),
    errors.QuotaExceeded: (
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "PrivateIpAddressLimitExceeded",
        "PendingVerification",
    ),
    errors.CredentialsRefused: (
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
    errors.WrongInstanceState: ("IncorrectInstanceState", "IncorrectState"),
    errors.LaunchLapsed: ("IdempotentInstanceTerminated",),
    errors.TokenMismatch: ("IdempotentParameterMismatch",),
    errors.LaunchRefused: (
        "InvalidAMIID.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidBlockDeviceMapping",
        "InvalidCapacityReservationId.NotFound",
        "InvalidGroup.NotFound",
        "InvalidGroupId.Malformed",
        "InvalidInstanceType",
        "InvalidInstanceType.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSubnetID.NotFound",
    ),
    UnknownInstance: ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"),
}

KINDS: Final = {code: kind for kind, codes in _CODES.items() for code in codes}

_WRONG_CLOCK: Final = {"RequestExpired", "RequestTimeTooSkewed", "AuthFailure", "SignatureDoesNotMatch"}


def translate(operation: str, code: str, message: str, status: int) -> errors.LcmError:
    """The domain error for an error response of EC2."""
    hint = "; if the credentials are right, check this host's clock" if code in _WRONG_CLOCK else ""
    shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    return _kind(operation, code, status)(f"EC2 refused {operation}: {code}: {shown}{hint}")


def _kind(operation: str, code: str, status: int) -> type[errors.LcmError]:
    known = KINDS.get(code)
    if known is not None:
        return known
    if status == 503:
        return errors.Throttled
    # An explicit refusal of these parameters; anything else may have happened or may pass.
    return errors.LaunchRefused if 400 <= status < 500 and operation == "RunInstances" else errors.Unreachable
