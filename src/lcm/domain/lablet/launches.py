"""New workers for the sessions that no worker takes: one request per region and template."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from lcm.domain.lablet.decision import Launch
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.packing import Purchase, buy, item_of
from lcm.domain.lablet.possibility import Carrier, can_ever_take, carrier_of_template
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import PlacementTemplate, Snapshot


class ScaleUp(NamedTuple):
    """The launches, and the sessions that must wait because their region may not gain enough workers."""

    launches: tuple[Launch, ...]
    refused: dict[str, str]
    """Session to region. A session that is neither here nor in a launch fits no template in time."""


def scale_up(
    snapshot: Snapshot, unplaced: Sequence[LabletSession], ready_at: Mapping[str, datetime]
) -> ScaleUp:
    """Workers for sessions in the order of the queue, as few and cheap as found.

    `ready_at` says of each template when its workers are expected: one that comes too late is not launched.
    """
    launches: list[Launch] = []
    refused: dict[str, str] = {}
    waiting = list(unplaced)
    for region in regions_of(snapshot):
        market = _Market(snapshot, region, ready_at)
        found, lacking = market.serve([each for each in waiting if each.demand.region in (None, region)])
        launches += found
        launched = {seat for launch in found for seats in launch.seats for seat in seats}
        waiting = [each for each in waiting if each.id not in launched]
        for session_id in lacking:
            refused.setdefault(session_id, region)
    left = {session.id for session in waiting}
    return ScaleUp(
        tuple(sorted(launches, key=lambda launch: launch.region)),
        {session_id: region for session_id, region in refused.items() if session_id in left},
    )


def regions_of(snapshot: Snapshot) -> list[str]:
    """The regions in the order in which sessions that may run in any of them are launched."""
    return sorted(snapshot.growth, key=lambda name: (snapshot.growth[name].count <= 0, name))


def region_of(snapshot: Snapshot, session: LabletSession) -> str:
    """Where a worker for the session is launched."""
    return session.demand.region or next(iter(regions_of(snapshot)), "")


_Offer = tuple[PlacementTemplate, Carrier]
_Case = tuple[Demand, datetime | None]
"""What a session needs, and before when the worker must be ready."""


class _Market:
    """The templates of one region, and how many workers it may still gain."""

    def __init__(self, snapshot: Snapshot, region: str, ready_at: Mapping[str, datetime]) -> None:
        self._region = region
        self._ready_at = ready_at
        self._times = snapshot.times
        self._headroom = snapshot.headroom_percent
        self._ports = snapshot.ports.size
        self._left = snapshot.growth[region].count
        enabled = sorted((t for t in snapshot.templates if t.is_enabled), key=lambda t: t.name)
        self._offers: list[_Offer] = [
            (template, carrier_of_template(template, region, self._headroom)) for template in enabled
        ]

    def serve(self, sessions: Sequence[LabletSession]) -> tuple[list[Launch], list[str]]:
        """A launch for each group that one template takes, and the sessions for which workers are lacking."""
        launches: list[Launch] = []
        lacking: list[str] = []
        waiting = list(sessions)
        while waiting:
            served = self.served_together(waiting)
            if not served:
                break
            launch = self.launch(served)
            launched = {seat for seats in launch.seats for seat in seats} if launch is not None else set()
            launches += [launch] if launch is not None else []
            lacking += [session.id for session in served if session.id not in launched]
            ids = {session.id for session in served}
            waiting = [session for session in waiting if session.id not in ids]
        return launches, lacking

    def served_together(self, sessions: Sequence[LabletSession]) -> list[LabletSession]:
        """The sessions that the template takes which takes most of them."""
        counts = Counter(map(self._case, sessions))
        suited = [{case for case in counts if self._serves(offer, case)} for offer in self._offers]
        most = max(suited, key=lambda cases: sum(counts[case] for case in cases), default=set())
        return [session for session in sessions if self._case(session) in most]

    def _case(self, session: LabletSession) -> _Case:
        return session.demand, session.latest_arrival(self._times)

    def _serves(self, offer: _Offer, case: _Case) -> bool:
        """Whether a worker of the template could run the lab and is ready in time."""
        (template, carrier), (demand, latest) = offer, case
        is_in_time = latest is None or self._ready_at[template.name] < latest
        return is_in_time and can_ever_take(carrier, demand)

    def launch(self, sessions: Sequence[LabletSession]) -> Launch | None:
        """Workers for as many of the first sessions as the region may gain."""
        purchase = self._affordable(sessions)
        if purchase is None:
            return None
        self._left -= len(purchase.bins)
        return Launch(
            region=self._region,
            template=purchase.template,
            seats=tuple(tuple(sessions[index].id for index in each) for each in purchase.bins),
            usd_per_hour=purchase.usd_per_hour,
        )

    def _affordable(self, sessions: Sequence[LabletSession]) -> Purchase | None:
        cases = set(map(self._case, sessions))
        templates = [offer[0] for offer in self._offers if all(self._serves(offer, case) for case in cases)]
        items = [item_of(session.demand) for session in sessions]
        low, high, found = 0, len(items), None
        size = high
        while low < high and self._left > 0:
            purchase = buy(items[:size], templates, self._headroom, ports=self._ports, at_most=self._left)
            if purchase is not None:
                low, found = size, purchase
            else:
                high = size - 1
            size = (low + high + 1) // 2
        return found
