"""Bugs in fleet maintenance: sweeps, licenses, rate limits, premature conclusions."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from lcm.cml.sessions import CmlServer
from lcm.control_plane.commands import license_worker
from lcm.core.backoff import Backoff
from lcm.core.loop import ReconcileLoop, ResourceState
from lcm.core.rate_limit import TokenBucket
from lcm.core.results import ReconciliationResult, Requeue
from lcm.domain import requests
from lcm.domain.discovery import AllowList
from lcm.domain.errors import LcmError
from lcm.domain.license import License, LicenseOperation, deregister
from lcm.domain.orphans import AbsenceTracker, Budget, Orphan, OrphanKind
from lcm.domain.worker import Instance, Worker
from lcm.worker_controller.decisions import Situation
from lcm.worker_controller.ports import LicenseState
from lcm.worker_controller.running import license
from lcm.worker_controller.running.license import LicenseRegistrar, Next
from lcm.worker_controller.steps import terminating
from lcm.worker_controller.sweeps import orphans as sweeping
from lcm.worker_controller.sweeps.orphans import Orphans
from simulation.planted.base import planted_in, swapped, swapped_in
from simulation.scenarios.fleet import (
    a_license_has_the_terms_that_were_requested,
    a_license_registered_outside_is_deregistered,
    a_license_that_is_lost_is_noticed,
    a_maintained_fleet,
    an_imported_worker_brings_its_license,
    ec2_answers_now_and_then,
    licenses_come_and_go,
    one_of_two_strangers_is_adopted,
)


@planted_in(a_maintained_fleet)
def a_sweep_after_one_observation() -> Iterator[None]:
    yield from swapped(AbsenceTracker, "is_confirmed", lambda self, instance_id, now: True)


@planted_in(a_maintained_fleet)
def a_sweep_right_after_a_start() -> Iterator[None]:
    with swapped_in(AbsenceTracker, "is_confirmed", lambda self, instance_id, now: True):
        yield from swapped(sweeping, "reason_for_dry_run", lambda **_: None)


@planted_in(a_maintained_fleet)
def a_sweep_without_a_budget() -> Iterator[None]:
    yield from swapped(Budget, "allows", lambda self, fleet_size, now: True)


@planted_in(a_maintained_fleet)
def a_sweep_without_a_second_read() -> Iterator[None]:
    """The record may have appeared since the instances were listed."""

    async def terminate(self: Orphans, orphan: Orphan, sightings: AbsenceTracker) -> None:
        instance, now = orphan.instance, self.clock.monotonic()
        is_due = sightings.is_confirmed(instance.id, now) and self._budget.allows(self._fleet_size, now)
        if is_due and instance.region not in self.dry_run_reasons:
            self.check_leadership()
            self._budget.spend(now)
            with suppress(LcmError):
                await self.cloud.terminate_instance(instance.region, instance.id)

    yield from swapped(Orphans, "_terminate", terminate)


@planted_in(a_maintained_fleet)
def a_copied_tag_makes_an_instance_ours() -> Iterator[None]:
    yield from swapped(sweeping, "DESTROYABLE", frozenset(OrphanKind))


@planted_in(a_maintained_fleet)
def a_sweep_although_it_is_switched_off() -> Iterator[None]:
    original = Orphans.__post_init__

    def begin(self: Orphans) -> None:
        original(self)
        self.may_terminate = True

    yield from swapped(Orphans, "__post_init__", begin)


@planted_in(a_maintained_fleet)
def a_launch_is_repeated_without_observing() -> Iterator[None]:
    yield from swapped(Situation, "observation_failure", None)


@planted_in(a_maintained_fleet)
def a_license_is_lost_with_its_instance() -> Iterator[None]:
    yield from swapped(terminating, "_is_license_open", lambda worker: False)


@planted_in(a_license_registered_outside_is_deregistered)
def only_what_lcm_registered_is_deregistered() -> Iterator[None]:
    def deregister_own(known: License, *, must_ask: bool, now: datetime) -> License:
        return deregister(known, must_ask=False, now=now)

    yield from swapped(requests, "deregister", deregister_own)


@planted_in(an_imported_worker_brings_its_license)
def a_license_that_was_never_read_is_none() -> Iterator[None]:
    yield from swapped(Worker, "may_hold_license", property(lambda self: self.license.may_be_held))


@planted_in(a_license_that_is_lost_is_noticed)
def a_lost_license_is_not_noticed() -> Iterator[None]:
    async def follow(self: LicenseRegistrar, worker: Worker, server: CmlServer) -> None:
        return

    yield from swapped(LicenseRegistrar, "_follow_cml", follow)


@planted_in(a_license_has_the_terms_that_were_requested)
def a_registration_is_complete_without_its_nodes() -> Iterator[None]:
    async def complete(
        self: LicenseRegistrar, worker: Worker, server: CmlServer, state: LicenseState, request: object
    ) -> Worker:
        return await self._complete(worker, LicenseOperation.REGISTER, state.tier)

    yield from swapped(LicenseRegistrar, "_complete_registration", complete)


@planted_in(one_of_two_strangers_is_adopted)
def a_tag_is_trusted() -> Iterator[None]:
    yield from swapped(Worker, "is_trusted", True)


@planted_in(one_of_two_strangers_is_adopted)
def an_empty_allow_list_allows_everything() -> Iterator[None]:
    yield from swapped(AllowList, "allows", lambda self, instance: True)


@planted_in(a_maintained_fleet)
def a_debt_is_not_recorded() -> Iterator[None]:
    async def forget(*_: Any) -> None:
        return

    yield from swapped(license_worker, "_record_debt", forget)


@planted_in(licenses_come_and_go)
def a_lost_answer_means_that_cisco_was_notified() -> Iterator[None]:
    original = license.decide

    def decide(
        operation: LicenseOperation, state: LicenseState, *, was_requested: bool, is_answer_lost: bool
    ) -> Next:
        return original(operation, state, was_requested=was_requested)

    yield from swapped(license, "decide", decide)


@planted_in(a_maintained_fleet)
def no_call_waits_for_a_permit() -> Iterator[None]:
    async def take(self: TokenBucket, *, urgent: bool, within_seconds: float) -> None:
        return

    yield from swapped(TokenBucket, "take", take)


@planted_in(a_maintained_fleet)
def failures_are_repeated_every_second() -> Iterator[None]:
    yield from swapped(Backoff, "delay_seconds", lambda self, retries: self.base_seconds)


@planted_in(ec2_answers_now_and_then)
def a_wait_forgives_every_failure() -> Iterator[None]:
    original = ReconcileLoop._apply

    def apply(
        self: ReconcileLoop[Any],
        state: ResourceState,
        result: ReconciliationResult,
        marker: Hashable | None,
    ) -> None:
        original(self, state, result, marker)
        if isinstance(result, Requeue):
            state.retry_count = 0

    yield from swapped(ReconcileLoop, "_apply", apply)


@planted_in(a_maintained_fleet)
def an_instance_that_is_not_listed_has_lost_its_record() -> Iterator[None]:
    async def describe(
        self: Orphans, region: str, listed: Sequence[Instance], workers: Sequence[Worker]
    ) -> None:
        shown = {instance.id for instance in listed}
        for worker in workers:
            if worker.instance.id is not None and worker.instance.id not in shown:
                await self._end(worker, "not listed")

    yield from swapped(Orphans, "_end_records_without_instance", describe)
