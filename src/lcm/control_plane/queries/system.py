"""How LCM itself is doing: who leads, which processes run, what they miss and what they found."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lcm.control_plane.records.epochs import Leadership
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.records.presence import SCHEDULER
from lcm.control_plane.records.processes import SILENT_AFTER
from lcm.control_plane.records.worker_cache import CachedWorker
from lcm.control_plane.store.port import GUARD_KIND
from lcm.domain.telemetry import MonitorState
from lcm.rest.schemas import LABLET_CONTROLLER, WORKER_CONTROLLER
from lcm.rest.system import (
    AdoptedWorker,
    FleetFinds,
    LeaderView,
    ProcessView,
    SystemProblem,
    SystemView,
)

WITHOUT_LEADER: Final = {
    WORKER_CONTROLLER: "no worker is launched, started, stopped or measured",
    SCHEDULER: "no lablet session gets a worker",
    LABLET_CONTROLLER: "no lab is started or removed",
}
"""The services that need a leader, and what does not happen without one."""


async def system_view(records: Records, caches: Caches) -> SystemView:
    await caches.worker_cache.load()
    processes = caches.processes.now()
    leaders = [await _leader(records, service, processes) for service in WITHOUT_LEADER]
    finds = next((found for view in processes if (found := view.report.finds) is not None), None)
    monitors = Counter(known.monitor or MonitorState.DISCONNECTED for known in _live(caches))
    has_settled = records.clock.now() - caches.processes.since > SILENT_AFTER
    return SystemView(
        at=records.clock.now(),
        problems=[
            *(_missing_leaders(leaders) if has_settled else ()),
            *_problems_of(processes),
            *_problems_of_the_fleet(monitors, finds),
        ],
        leaders=leaders,
        processes=processes,
        monitors={state: monitors[state] for state in MonitorState if monitors[state]},
        adopted=sorted(
            (
                AdoptedWorker(worker_id=known.id, name=known.name, is_trusted=known.is_trusted)
                for known in caches.worker_cache
                if known.is_imported
            ),
            key=lambda worker: worker.name,
        ),
        finds=finds,
    )


def _live(caches: Caches) -> Iterator[CachedWorker]:
    return (known for known in caches.worker_cache if known.is_live)


async def _leader(records: Records, service: str, processes: Sequence[ProcessView]) -> LeaderView:
    document = await records.store.get(GUARD_KIND, service)
    known = msgspec.json.decode(document.body, type=Leadership) if document else None
    leading = {
        view.report.instance_id
        for view in processes
        if view.report.service == service
        and not view.is_silent
        and view.report.controller is not None
        and view.report.controller.is_leader
    }
    return LeaderView(
        service=service,
        instance_id=known.instance_id if known else None,
        epoch=document.version if document else 0,
        since=known.since if known else None,
        is_reporting=known is not None and known.instance_id in leading,
    )


def _missing_leaders(leaders: Sequence[LeaderView]) -> Iterator[SystemProblem]:
    for leader in leaders:
        if not leader.is_reporting:
            text = f"No {leader.service} reports that it leads: {WITHOUT_LEADER[leader.service]}."
            yield SystemProblem(code="no_leader", text=text)


def _problems_of(processes: Sequence[ProcessView]) -> Iterator[SystemProblem]:
    for view in processes:
        report = view.report
        name = f"{report.service} {report.instance_id}"
        if view.is_silent:
            yield SystemProblem(code="silent", text=f"{name} has stopped or cannot reach the control plane.")
            continue
        for reason in report.frozen:
            yield SystemProblem(code="frozen", text=f"{name} changes nothing at present: {reason}.")
        for loop in report.silent_loops:
            yield SystemProblem(
                code="silent_loop", text=f"{name}: its loop {loop!r} stands still; restart it."
            )
    versions = sorted({view.report.version for view in processes if not view.is_silent})
    if len(versions) > 1:
        text = f"The processes run different versions: {', '.join(versions)}."
        yield SystemProblem(code="versions_differ", text=text)


def _problems_of_the_fleet(
    monitors: Counter[MonitorState], finds: FleetFinds | None
) -> Iterator[SystemProblem]:
    if failed := monitors[MonitorState.FAILED]:
        text = f"The WebSocket of {_workers(failed)} has failed; CML is polled instead."
        yield SystemProblem(code="websocket_failed", text=text)
    if finds is None:
        return
    for scan in finds.scans:
        if scan.error:
            yield SystemProblem(code="scan_failed", text=f"{scan.region} was not searched: {scan.error}.")
    if finds.orphan_count:
        count = finds.orphan_count
        instances = "1 EC2 instance has" if count == 1 else f"{count} EC2 instances have"
        yield SystemProblem(code="orphans", text=f"{instances} LCM's tags and no worker.")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
