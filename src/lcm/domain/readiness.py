"""The wait for a CML that is not ready: how far the last attempt to reach it came, and what that suggests."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from lcm.domain.template import is_metal

READY_WITHIN: Final = timedelta(minutes=15)
READY_WITHIN_ON_METAL: Final = timedelta(minutes=40)
"""Bare metal boots its firmware first, which takes ten to twenty minutes."""
MAX_DETAIL: Final = 200
"""Characters kept of what an attempt met: it may quote a server."""


class CmlContact(StrEnum):
    """How far an attempt to reach CML came."""

    NO_ADDRESS = "no_address"
    NO_ANSWER = "no_answer"
    OTHER_CERTIFICATE = "other_certificate"
    NO_CML = "no_cml"
    NOT_READY = "not_ready"


class CmlAttempt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An attempt that did not find CML ready."""

    contact: CmlContact
    detail: Annotated[str, msgspec.Meta(max_length=MAX_DETAIL)]


class CmlWait(msgspec.Struct, frozen=True, kw_only=True):
    """The wait of a running worker for its CML."""

    since: datetime
    last: CmlAttempt
    was_ready: bool = False
    """CML was ready before on this run of the instance: people may still use what runs there."""
    alarmed_at: datetime | None = None

    @property
    def proves_unused(self) -> bool:
        """Whether people cannot have used the worker: with another certificate CML may well be ready."""
        return not self.was_ready and self.last.contact is not CmlContact.OTHER_CERTIFICATE


class Cause(StrEnum):
    """Why a CML may not become ready, in the order in which to check it."""

    ADDRESS = "cause_address"
    SECURITY_GROUP = "cause_security_group"
    SETUP = "cause_setup"
    KVM = "cause_kvm"
    IMAGE = "cause_image"
    CERTIFICATE = "cause_certificate"


CHECK: Final = {
    Cause.ADDRESS: "address: does the instance have one that LCM reaches? A subnet without public addresses"
    " needs associate_public_ip in the template, or USE_PRIVATE_IP_FOR_MONITORING",
    Cause.SECURITY_GROUP: "security group: does it, with the routes and network ACLs, let this host reach"
    " CML's port?",
    Cause.SETUP: "setup: has CML's initial setup run on the image? It waits at the console for a person",
    Cause.KVM: "KVM: without it no compute host of CML becomes ready; bare metal or nested virtualization"
    " has it",
    Cause.IMAGE: "image: does the AMI contain CML, with enough memory and disk to boot it? See the instance's"
    " system log",
    Cause.CERTIFICATE: "certificate: was CML reinstalled, or its certificate renewed? An admin can accept it",
}

_LIKELY: Final = {
    CmlContact.NO_ADDRESS: (Cause.ADDRESS,),
    CmlContact.NO_ANSWER: (Cause.ADDRESS, Cause.SECURITY_GROUP, Cause.SETUP, Cause.IMAGE),
    CmlContact.OTHER_CERTIFICATE: (Cause.CERTIFICATE,),
    CmlContact.NO_CML: (Cause.SETUP, Cause.IMAGE),
    CmlContact.NOT_READY: (Cause.SETUP, Cause.KVM, Cause.IMAGE),
}


def likely_causes(contact: CmlContact) -> tuple[Cause, ...]:
    """The causes that the last attempt does not rule out, in the order in which to check them."""
    return _LIKELY[contact]


def ready_within(instance_type: str | None, setting: timedelta | None) -> timedelta:
    """How long CML may take to become ready once the worker runs; the setting, if there is one, decides."""
    if setting is not None:
        return setting
    return READY_WITHIN_ON_METAL if is_metal(instance_type or "") else READY_WITHIN
