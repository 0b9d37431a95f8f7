"""Bugs in idle detection, and in access control."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.access.roles import AccessKeys, Principal
from lcm.control_plane.api import dependencies
from lcm.control_plane.commands import (
    detect_idle,
    hold_worker,
    report_status,
    request_action,
)
from lcm.control_plane.records import preconditions
from lcm.domain import idle, requests
from lcm.domain.idle import Evidence, IdlePolicy, PauseGuard
from lcm.domain.launch import WorkerId
from lcm.domain.license import License
from lcm.domain.lifecycle import DesiredStatus
from lcm.domain.worker import Action, Worker
from lcm.rest.schemas import TelemetryEvent
from lcm.worker_controller.monitoring.service import LiveMonitoring
from simulation.planted.base import planted_in, swapped
from simulation.scenarios.idle import (
    a_busy_instance_is_not_paused,
    a_class_day,
    a_cml_never_becomes_ready,
    a_person_stops_what_is_being_paused,
    cml_cannot_be_asked,
    only_telemetry_shows_the_use,
)

planted = planted_in(a_class_day)


@planted_in(cml_cannot_be_asked)
def unknown_is_unused() -> Iterator[None]:
    def evidence(**known: Any) -> Evidence:
        return Evidence(**{**known, "telemetry_fetched": True})

    yield from swapped(detect_idle, "Evidence", evidence)


@planted_in(cml_cannot_be_asked)
def a_worker_that_cannot_be_asked_is_unused() -> Iterator[None]:
    original = LiveMonitoring.fetch_telemetry

    async def fetch_telemetry(self: LiveMonitoring, worker_id: WorkerId) -> Sequence[TelemetryEvent]:
        return await original(self, worker_id) or []

    yield from swapped(LiveMonitoring, "fetch_telemetry", fetch_telemetry)


@planted_in(only_telemetry_shows_the_use)
def what_telemetry_reports_is_ignored() -> Iterator[None]:
    yield from swapped(detect_idle, "newest_use", lambda events, now: None)


@planted_in(a_cml_never_becomes_ready)
def a_cml_that_never_becomes_ready_counts_as_used() -> Iterator[None]:
    def evidence(**known: Any) -> Evidence:
        return Evidence(**{**known, "is_cml_not_ready": False})

    yield from swapped(detect_idle, "Evidence", evidence)


@planted_in(a_cml_never_becomes_ready)
def a_cml_that_boots_counts_as_unused() -> Iterator[None]:
    yield from swapped(idle, "cml_overdue_at", lambda worker, policy: None)


@planted
def one_idle_check_is_enough() -> Iterator[None]:
    original = idle.pause_guard

    def guard(*asked: Any) -> PauseGuard | None:
        found = original(*asked)
        return None if found is PauseGuard.SECOND_CHECK else found

    yield from swapped(detect_idle, "pause_guard", guard)


@planted
def a_busy_instance_is_unused() -> Iterator[None]:
    yield from swapped(detect_idle, "recent_load", lambda caches, policies, worker_id, now: None)


@planted_in(a_busy_instance_is_not_paused)
def a_worker_is_paused_while_it_is_licensed() -> Iterator[None]:
    original = idle.pause_guard

    def guard(worker: Worker, *evidence: Any) -> PauseGuard | None:
        return original(replace(worker, license=License()), *evidence)

    yield from swapped(detect_idle, "pause_guard", guard)


@planted
def a_pause_lasts_for_ever() -> Iterator[None]:
    yield from swapped(report_status, "is_pause_overdue", lambda worker, now: False)


@planted
def only_what_was_paused_comes_up() -> Iterator[None]:
    def snoozed_until(worker: Worker, policy: IdlePolicy) -> datetime | None:
        return worker.pause.last_resumed_at + policy.snooze if worker.pause.last_resumed_at else None

    yield from swapped(idle, "snoozed_until", snoozed_until)


@planted_in(a_person_stops_what_is_being_paused)
def a_stop_adds_nothing_to_a_pause() -> Iterator[None]:
    def request(worker: Worker, action: Action, **asked: Any) -> Worker:
        is_nothing_new = action is Action.STOP and worker.desired_status is DesiredStatus.STOPPED
        return worker if is_nothing_new else requests.request(worker, action, **asked)

    yield from swapped(request_action, "request", request)


@planted
def a_hold_comes_too_late() -> Iterator[None]:
    yield from swapped(hold_worker, "cancel_pause", lambda worker, **why: worker)


@planted
def the_minimum_is_not_counted() -> Iterator[None]:
    async def plenty(records: Any) -> set[str]:
        return {f"another-{number}" for number in range(99)}

    yield from swapped(detect_idle, "_running_workers", plenty)


@planted
def a_request_is_carried_out_as_often_as_it_is_sent() -> Iterator[None]:
    yield from swapped(preconditions, "was_carried_out", lambda recent, request: False)


@planted
def a_token_becomes_a_name() -> Iterator[None]:
    original = AccessKeys.principal_of

    def principal_of(self: AccessKeys, token: str) -> Principal | None:
        found = original(self, token)
        return Principal(found.id, token, found.role) if found is not None else None

    yield from swapped(AccessKeys, "principal_of", principal_of)


@planted
def any_role_will_do() -> Iterator[None]:
    yield from swapped(dependencies, "require", lambda principal, role: None)
