"""Finds claims and nominations without a session, sessions without their claim, and unfinished ends.

A claim counts as stale if its session is missing, has ended, or has moved on to another attempt, and was
found so twice, a while apart: the three writes of a placement may be under way. It is released, unless a lab
may exist for it: then it is retained, until that lab is proven gone.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from lcm.control_plane.commands.lablets.clean_up_session import finish_cleanup
from lcm.control_plane.commands.lablets.lost_claims import repair_claim
from lcm.control_plane.commands.lablets.schedule_sessions import release_claim
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.errors import Conflict, IllegalTransition, NotFound
from lcm.domain.lablet.admission import find_claim, hold_again, let_go_of_stale, nominate_worker
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import STOPPING
from lcm.domain.worker import Worker

log = structlog.get_logger(__name__)

CONFIRMED_AFTER: Final = timedelta(seconds=60)


class _ClaimChange(Protocol):
    def __call__(self, worker: Worker, session_id: str, attempt: int, *, now: datetime) -> Worker: ...


class ClaimSweep:
    """Remembers what looked stale, until a later pass confirms it."""

    def __init__(self, records: Records, policies: Policies) -> None:
        self._records = records
        self._policies = policies
        self._suspects: dict[tuple[str, str, int], datetime] = {}
        self._retained_too_long: dict[tuple[str, str, int], datetime] = {}
        self.released = 0

    async def sweep(self) -> None:
        """Release stale claims, drop nominations without a session, repair what lost its claim."""
        # Sessions first: a claim that a session had then and its worker lacks now is gone.
        sessions = {session.id: session for session in await self._records.sessions.list_all()}
        workers = {str(worker.id): worker for worker in await self._records.workers.list_live()}
        now = self._records.clock.now()
        found = dict(_stale(workers, sessions))
        self._suspects = {key: self._suspects.get(key, now) for key in found}
        for key, why in found.items():
            if now - self._suspects[key] >= CONFIRMED_AFTER:
                await self._release(*key, why=why, session=sessions.get(key[1]))
        await self._hold_again(workers, sessions, now)
        for worker in workers.values():
            await self._drop_nominations(worker, sessions)
        for session in sessions.values():
            await repair_claim(self._records, self._policies, session, workers.get(session.worker_id or ""))
            await self._finish_cleanup(session)

    async def _hold_again(
        self, workers: Mapping[str, Worker], sessions: Mapping[str, LabletSession], now: datetime
    ) -> None:
        """Undo what is left of a session that was to move on and did not: its claim counts as in use."""
        found = _retained_in_use(workers, sessions)
        self._retained_too_long = {key: self._retained_too_long.get(key, now) for key in found}
        for (worker_id, session_id, attempt), since in self._retained_too_long.items():
            if now - since >= CONFIRMED_AFTER:
                await self._change_claim(worker_id, session_id, attempt, hold_again)

    async def _finish_cleanup(self, session: LabletSession) -> None:
        if session.status is STOPPING and session.cleanup.proof is not None:
            try:
                await finish_cleanup(self._records, session, by="control plane")
            except (Conflict, IllegalTransition, NotFound):
                return  # the lablet controller finishes it at this moment

    async def _change_claim(
        self, worker_id: str, session_id: str, attempt: int, change: _ClaimChange
    ) -> Worker | None:
        now = self._records.clock.now()
        try:
            return await self._records.workers.change(
                worker_id, lambda worker: change(worker, session_id, attempt, now=now)
            )
        except (Conflict, NotFound):
            return None

    async def _release(
        self, worker_id: str, session_id: str, attempt: int, *, why: str, session: LabletSession | None
    ) -> None:
        if session is None or session.attempt != attempt:
            worker = await self._change_claim(worker_id, session_id, attempt, let_go_of_stale)
            if worker is not None and find_claim(worker, session_id, attempt) is not None:
                log.warning("stale claim retained", worker_id=worker_id, session_id=session_id, reason=why)
                return
        else:
            await release_claim(self._records, worker_id, session_id, attempt)
        self.released += 1
        log.warning("stale claim released", worker_id=worker_id, session_id=session_id, reason=why)
        await self._records.lablet_audit.note(
            LabletEvent.PLACEMENT_RELEASED,
            by="control plane",
            reason=f"stale_claim: attempt {attempt}, {why}",
            session=session,
            worker_id=worker_id,
        )

    async def _drop_nominations(self, worker: Worker, sessions: Mapping[str, LabletSession]) -> None:
        gone = frozenset(
            session_id
            for session_id in worker.nominations
            if (session := sessions.get(session_id)) is None
            or session.nominated is None
            or session.nominated.worker_id != worker.id
        )
        if gone:
            try:
                await self._records.workers.change(
                    worker.id, lambda current: nominate_worker(current, {}, gone)
                )
            except (Conflict, NotFound):
                return


def _stale(
    workers: Mapping[str, Worker], sessions: Mapping[str, LabletSession]
) -> Iterator[tuple[tuple[str, str, int], str]]:
    for worker in workers.values():
        for claim in worker.claims:
            why = None if claim.is_retained else _why_stale(claim, worker.id, sessions.get(claim.session_id))
            if why is not None:
                yield (worker.id, claim.session_id, claim.attempt), why


def _retained_in_use(
    workers: Mapping[str, Worker], sessions: Mapping[str, LabletSession]
) -> Iterator[tuple[str, str, int]]:
    """Retained claims whose session has not moved on."""
    for worker in workers.values():
        for claim in worker.claims:
            session = sessions.get(claim.session_id)
            if not claim.is_retained or session is None or session.is_ended:
                continue
            if (session.worker_id, session.attempt) == (worker.id, claim.attempt):
                yield worker.id, claim.session_id, claim.attempt


def _why_stale(claim: Claim, worker_id: str, session: LabletSession | None) -> str | None:
    if session is None:
        return "there is no such session"
    if session.is_ended:
        return "the session has ended"
    if session.attempt != claim.attempt:
        return f"the session is at attempt {session.attempt}"
    holder = session.placement.worker_id if session.placement is not None else session.worker_id
    return None if holder == worker_id else "the session is placed elsewhere"
