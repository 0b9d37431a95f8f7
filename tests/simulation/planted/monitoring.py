"""Bugs in monitoring workers and in reporting activity."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

import msgspec

from lcm.cml import session
from lcm.cml.sessions import CmlServer, CmlSessions
from lcm.control_plane.api.public import cml_login
from lcm.control_plane.commands import change_login, report_details, report_live
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.preconditions import Preconditions
from lcm.control_plane.streaming.hub import EventHub
from lcm.domain.telemetry import ActivityEvent
from lcm.domain.worker import CmlLogin, Worker
from lcm.rest.schemas import ActivityReport
from lcm.worker_controller.monitoring.activity_log import ActivityLog
from lcm.worker_controller.monitoring.monitor import CmlWebSocketMonitor, _Link
from lcm.worker_controller.monitoring.polling import RestFallback
from lcm.worker_controller.monitoring.telemetry_log import TelemetryLog
from simulation.planted.base import planted_in, swapped
from simulation.scenarios.monitoring import (
    a_live_fleet,
    a_renewed_certificate_is_trusted_once_a_person_accepts_it,
    people_change_the_password_of_one_worker,
)


@planted_in(a_live_fleet)
def what_the_record_holds_counts_again() -> Iterator[None]:
    original = TelemetryLog.__init__

    def begin(self: TelemetryLog, since: datetime, recorded: Iterable[ActivityEvent] = ()) -> None:
        original(self, since)

    yield from swapped(TelemetryLog, "__init__", begin)


@planted_in(a_live_fleet)
def a_silent_connection_reported_everything() -> Iterator[None]:
    original = RestFallback.on_connection_change

    def follow(self: RestFallback, is_connected: bool, received_at: float) -> None:
        original(self, is_connected, self._clock.monotonic())

    yield from swapped(RestFallback, "on_connection_change", follow)


@planted_in(a_live_fleet)
def activity_is_forgotten_once_it_is_sent() -> Iterator[None]:
    original = ActivityLog.unconfirmed_reports

    def unconfirmed_reports(self: ActivityLog) -> Iterator[ActivityReport]:
        reports = list(original(self))
        self._unconfirmed = None
        return iter(reports)

    yield from swapped(ActivityLog, "unconfirmed_reports", unconfirmed_reports)


@planted_in(a_live_fleet)
def reports_of_a_worker_are_taken_side_by_side() -> Iterator[None]:
    def separate(reports: Iterable[ActivityReport]) -> list[list[ActivityReport]]:
        return [[report] for report in reports]

    yield from swapped(report_live, "_by_worker", separate)


@planted_in(a_live_fleet)
def a_connection_is_left_open() -> Iterator[None]:
    def hang_up(self: _Link) -> None:
        self.socket = None

    yield from swapped(_Link, "close", hang_up)


@planted_in(a_live_fleet)
def silence_is_never_noticed() -> Iterator[None]:
    yield from swapped(CmlWebSocketMonitor, "check", lambda self, now: None)


@planted_in(a_live_fleet)
def a_refused_password_is_tried_for_ever() -> Iterator[None]:
    yield from swapped(session, "MAX_REFUSALS", 1_000)


@planted_in(people_change_the_password_of_one_worker)
def another_login_is_not_noticed() -> Iterator[None]:
    original = CmlSessions.of

    def of(self: CmlSessions, server: CmlServer) -> session.CmlSession:
        doors = list(self._known[server.worker_id])
        return original(self, replace(server, login=doors[0][1]) if doors else server)

    yield from swapped(CmlSessions, "of", of)


@planted_in(people_change_the_password_of_one_worker)
def a_request_that_is_sent_again_throws_the_wrong_password_away() -> Iterator[None]:
    async def set_login(
        records: Records,
        worker_id: str,
        username: str,
        password: str,
        *,
        by: str,
        preconditions: Preconditions,
    ) -> Worker:
        login = CmlLogin(username=username, secret_ref=f"{worker_id}-{records.ids.new_id()[:8]}")
        await records.secrets.put(change_login.PURPOSE, login.secret_ref, password)
        worker = await change_login._change(records, worker_id, login, by, preconditions)
        if worker.cml.login is not None and worker.cml.login != login:
            await records.secrets.remove(change_login.PURPOSE, worker.cml.login.secret_ref)
        return worker

    yield from swapped(cml_login, "set_login", set_login)


@planted_in(a_live_fleet)
def polling_goes_on_beside_the_connection() -> Iterator[None]:
    original = RestFallback.on_connection_change

    def follow(self: RestFallback, is_connected: bool, received_at: float) -> None:
        original(self, is_connected, received_at)
        self._is_active = True

    yield from swapped(RestFallback, "on_connection_change", follow)


@planted_in(a_live_fleet)
def every_reconnection_is_published() -> Iterator[None]:
    original = EventHub.on_worker_commit

    def on_worker_commit(self: EventHub, before: Worker | None, after: Worker) -> None:
        if before is not None and before.connection.is_connected is not after.connection.is_connected:
            self._publish_connection(after)
        original(self, before, after)

    yield from swapped(EventHub, "on_worker_commit", on_worker_commit)


@planted_in(a_renewed_certificate_is_trusted_once_a_person_accepts_it)
def another_certificate_is_pinned_by_itself() -> Iterator[None]:
    def record(worker: Worker, presented: str, *, by: str, now: datetime) -> Worker:
        return msgspec.structs.replace(
            worker, cml=msgspec.structs.replace(worker.cml, certificate_sha256=presented)
        )

    yield from swapped(report_details, "record_certificate", record)
