# Generated from `aio` by `make docs`; change that instead.
"""A whole fleet, as documents say that it should be."""

from collections.abc import Mapping, Sequence
from typing import Any

from lcm.client.calls import Call
from lcm.client.sync.link import Link
from lcm.rest.plans import DEFAULT_SET, FleetPlan, PlannedStep, PlanRequest


class Fleet:
    """Plans the way to a fleet that documents describe, and carries it out."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def plan(
        self,
        resources: Sequence[Mapping[str, Any]],
        *,
        file_set: str = DEFAULT_SET,
        prune: bool = False,
        delete: bool = False,
    ) -> FleetPlan:
        """Return what would be requested. Each resource is a mapping with its `kind`; nothing is changed."""
        body = PlanRequest(
            resources=[dict(each) for each in resources],
            file_set=file_set,
            prune=prune,
            goal="delete" if delete else "apply",
        )
        return self._link.send(Call(method="POST", path="/api/plan", body=body, answer=FleetPlan))

    def carry_out(self, step: PlannedStep) -> None:
        """Send the requests of a step, in order. Repeating it changes nothing. Raises Refused."""
        for request in step.requests:
            call = Call(
                method=request.method,
                path=request.path,
                body=request.body,
                if_match=request.if_match,
                is_keyed=True,
                key=request.idempotency_key,
                answer=bytes,
            )
            self._link.send(call)
