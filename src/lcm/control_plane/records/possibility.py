"""Where a lab could run at all, if everything were empty: reads workers and templates, no sessions."""

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.domain.capacity import declared_by
from lcm.domain.errors import ImpossibleNeeds, UnknownReference
from lcm.domain.lablet.admission import view_of
from lcm.domain.lablet.claim import reserved_by
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.possibility import Possibilities
from lcm.domain.lablet.snapshot import Growth, PlacementTemplate, Snapshot
from lcm.domain.template import WorkerTemplate


async def refuse_impossible(records: Records, policies: Policies, demand: Demand) -> None:
    """Raise ImpossibleNeeds if no worker and no template can ever meet the demand.

    Mostly a template can, and then no worker is read.
    """
    templates = await _templates(records, policies)
    if Possibilities(templates).refusal(demand) is None:
        return
    refusal = Possibilities(await _with_workers(records, templates)).refusal(demand)
    if refusal is not None:
        raise ImpossibleNeeds(f"{refusal} Change the lab, or add a worker or a template that can run it.")


def refuse_unknown_region(policies: Policies, region: str | None) -> None:
    """Raise UnknownReference for a region without workers."""
    if region is not None and region not in policies.regions:
        raise UnknownReference(
            f"region {region!r} is not configured; choose one of: {', '.join(policies.regions)}"
        )


async def carriers(records: Records, policies: Policies) -> Snapshot:
    """Return the part of a snapshot from which possibility is judged; much cheaper than a whole one."""
    return await _with_workers(records, await _templates(records, policies))


async def _templates(records: Records, policies: Policies) -> Snapshot:
    return Snapshot(
        templates=tuple(map(template_view, await records.templates.list_all())),
        growth={region: Growth(count=0) for region in policies.regions},
        ports=policies.ports,
        headroom_percent=policies.headroom_percent,
    )


async def _with_workers(records: Records, templates: Snapshot) -> Snapshot:
    workers = await records.workers.list_live()
    return replace(templates, workers=tuple(view_of(worker) for worker in workers if worker.is_trusted))


def template_view(template: WorkerTemplate) -> PlacementTemplate:
    """Return the template as placement sees it."""
    return PlacementTemplate(
        name=template.name,
        declared=declared_by(template),
        reserve=reserved_by(template),
        usd_per_hour=template.usd_per_hour,
        is_enabled=template.enabled,
        has_nested_virtualization=template.has_kvm,
    )
