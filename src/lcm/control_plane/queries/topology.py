"""What a topology needs, and which workers and templates could run it."""

from msgspec.structs import replace

from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.possibility import carriers
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.possibility import (
    GONE,
    Carrier,
    carrier_of_template,
    carrier_of_worker,
    obstacles,
)
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.lablet.topology import Topology, analyse
from lcm.domain.lifecycle import DesiredStatus
from lcm.rest.scheduling import Fit, TopologyAnalysis, TopologyWarning


async def analyse_topology(records: Records, policies: Policies, lab_yaml: str) -> TopologyAnalysis:
    """Return what a topology needs and where it can run. Nothing is stored."""
    lab = analyse(lab_yaml)
    demand = Demand(
        needs=lab.needs, ports=lab.ports, node_definitions=lab.node_definitions, images=lab.images
    )
    return await _analysis(records, policies, lab, demand)


async def analyse_definition(records: Records, policies: Policies, definition_id: str) -> TopologyAnalysis:
    """Return the same of a definition: what its author stated counts for where it can run."""
    definition = (await records.definitions.get(definition_id)).definition
    lab = analyse(await records.definitions.topology(definition.lab_yaml_hash))
    found = await _analysis(records, policies, lab, definition.demand)
    median = records.lab_times.median(definition.lab_yaml_hash)
    return found if median is None else replace(found, median_ready_seconds=median.total_seconds())


async def _analysis(records: Records, policies: Policies, lab: Topology, demand: Demand) -> TopologyAnalysis:
    return TopologyAnalysis(
        title=lab.title,
        needs=lab.needs,
        nodes=lab.nodes,
        link_count=len(lab.links),
        links=lab.links,
        ports=lab.ports,
        unknown_definitions=lab.unknown_definitions,
        warnings=tuple(TopologyWarning(line=each.line, text=str(each)) for each in lab.warnings),
        fits=tuple(_fits(await carriers(records, policies), demand, policies)),
    )


def _fits(snapshot: Snapshot, demand: Demand, policies: Policies) -> list[Fit]:
    templates = [
        _fit(
            "template",
            template.name,
            carrier_of_template(template, policies.default_region, snapshot.headroom_percent),
            demand,
            template.usd_per_hour,
        )
        for template in snapshot.templates
        if template.is_enabled
    ]
    workers = [
        _fit("worker", worker.name, carrier_of_worker(worker), demand, worker.usd_per_hour)
        for worker in sorted(snapshot.workers, key=lambda worker: worker.name)
        if worker.status not in GONE and worker.desired_status is not DesiredStatus.TERMINATED
    ]
    return [*templates, *workers]


def _fit(kind: str, name: str, carrier: Carrier, demand: Demand, usd_per_hour: float | None) -> Fit:
    reason = "; ".join(obstacles(carrier, demand))
    return Fit(kind=kind, name=name, is_possible=not reason, reason=reason, usd_per_hour=usd_per_hour)
