"""What a decision cycle of placement costs, how many workers a class buys, how long a lab is analysed.

Reference of the cycle: the same sessions when every worker has room, so that each is placed at once.
`--topologies DIR` only analyses the labs of a folder and prints what each needs, with the node definitions in
its folder `definitions`. Without it the labs of the tests are analysed.
"""

import argparse
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path

import yaml
from msgspec.structs import replace

from lcm.control_plane.queries.preview import described
from lcm.domain.capacity import Capacity
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.definition import Demand
from lcm.domain.lablet.filters import Vector, fits, vector
from lcm.domain.lablet.forecast import forecast, seats_of
from lcm.domain.lablet.node_definitions import NodeDefinition, read_node_definition
from lcm.domain.lablet.packing import room_of, subtract
from lcm.domain.lablet.placement import PlacementEngine
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.snapshot import Growth, PlacementTemplate, PlacementWorker, Snapshot
from lcm.domain.lablet.states import SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.domain.lablet.topology import analyse
from lcm.domain.lifecycle import WorkerStatus
from report import report

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=30)
SESSIONS = 1_000
GOALS = {100: 0.2, 1_000: 1.0}
"""CPU seconds of a cycle at most, by workers."""
CLASSES = 200
FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "topologies"
SIZES = (
    ("micro", 2, 1, 20, 2, 0.0104),
    ("small", 2, 2, 50, 5, 0.0208),
    ("medium", 2, 4, 100, 15, 0.0416),
    ("large", 2, 8, 200, 30, 0.0832),
    ("metal", 48, 192, 1000, 200, 3.9641),
)
TEMPLATES = tuple(
    PlacementTemplate(
        name=name,
        declared=Capacity(cpu=cpu, memory_gb=memory, storage_gb=disk, nodes=nodes),
        usd_per_hour=price,
    )
    for name, cpu, memory, disk, nodes, price in SIZES
)
METAL = TEMPLATES[-1].declared


def needs(chance: random.Random) -> Capacity:
    """A lab of one to eight nodes."""
    nodes = chance.randint(1, 8)
    memory = round(nodes * chance.uniform(0.5, 3), 3)
    return Capacity(cpu=nodes, memory_gb=memory + 0.5, storage_gb=nodes * 2, nodes=nodes)


def a_session(session_id: str, demand: Demand, created_at: datetime) -> LabletSession:
    return LabletSession(
        id=session_id,
        definition_id="d",
        definition_name="lab",
        definition_version="1.0.0",
        lab_yaml_hash="",
        demand=demand,
        max_duration_minutes=60,
        latest_start_minutes=30,
        owner_id="ann",
        status=SessionStatus.PENDING_SCHEDULING,
        created_at=created_at,
        updated_at=NOW,
    )


def snapshot(workers: int, definitions: int, *, is_full: bool) -> Snapshot:
    chance = random.Random(16)
    demands = [Demand(needs=needs(chance)) for _ in range(definitions)]
    sessions = tuple(
        a_session(f"s{number:04}", chance.choice(demands), NOW - timedelta(seconds=chance.randint(0, 3600)))
        for number in range(SESSIONS)
    )
    views = tuple(
        PlacementWorker(
            id=f"w{number:04}",
            name=f"w{number:04}",
            region="here",
            status=WorkerStatus.RUNNING,
            declared=METAL,
            claims=claims(chance, 45 if is_full else 4),
        )
        for number in range(workers)
    )
    return Snapshot(
        workers=views,
        sessions=sessions,
        templates=TEMPLATES,
        growth={"here": Growth(count=10)},
        queue_limit=SESSIONS,
    )


def claims(chance: random.Random, cpu: int) -> tuple[Claim, ...]:
    """Claims of four sessions with this much CPU in all, which end some time in the next two hours."""
    amount = Capacity(cpu=cpu / 4, memory_gb=cpu / 2, storage_gb=cpu / 2, nodes=4)
    return tuple(
        Claim(
            session_id=f"c{number}",
            attempt=1,
            needs=amount,
            at=NOW,
            ends_at=NOW + timedelta(minutes=chance.randint(1, 120)),
        )
        for number in range(4)
    )


def cpu_of_a_cycle(view: Snapshot) -> float:
    """CPU seconds of one plan; the cheapest of three."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        PlacementEngine.plan(view, NOW)
        best = min(best, time.process_time() - began)
    return best


def cpu_of_questions(view: Snapshot) -> dict[str, float]:
    """CPU seconds of an explanation of the last session, a preview of 30 seats, and a forecast of them."""
    last = max(view.sessions, key=lambda session: session.created_at)
    seats = seats_of(
        Demand(needs=needs(random.Random(7))),
        30,
        timeslot=None,
        max_minutes=60,
        now=NOW,
        lead=view.times.lead,
    )
    later = [replace(seat, timeslot=Timeslot(start=LATER, end=LATER + timedelta(hours=1))) for seat in seats]
    return {
        "explain the last session": cpu_of(lambda: PlacementEngine.decide(view, last, NOW)),
        "forecast of 30 seats": cpu_of(lambda: forecast(view, later, NOW)),
        "preview 30 seats": cpu_of(lambda: described(view, seats, forecast(view, seats, NOW), NOW)),
    }


def cpu_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def first_fit_decreasing(items: list[Vector], room: Vector) -> int:
    rooms: list[Vector] = []
    for item in sorted(
        items, key=lambda item: max(a / b for a, b in zip(item, room, strict=True)), reverse=True
    ):
        place = next((number for number, left in enumerate(rooms) if fits(item, left)), None)
        if place is None:
            rooms.append(subtract(room, item))
        else:
            rooms[place] = subtract(rooms[place], item)
    return len(rooms)


def purchases() -> dict[str, float]:
    """Workers that a cycle launches for random classes, each of up to three labs, against two bounds."""
    chance = random.Random(16)
    bought = bound = decreasing = exceeded = 0
    rooms = {template.name: room_of(template) for template in TEMPLATES}
    for _ in range(CLASSES):
        labs = [Demand(needs=needs(chance)) for _ in range(chance.randint(1, 3))]
        seats = [a_session(f"s{number}", chance.choice(labs), NOW) for number in range(chance.randint(5, 40))]
        view = Snapshot(sessions=tuple(seats), templates=TEMPLATES, growth={"here": Growth(count=100)})
        for launch in PlacementEngine.plan(view, NOW).launches:
            served = {seat for each in launch.seats for seat in each}
            items = [vector(seat.demand.needs) for seat in seats if seat.id in served]
            seats = [seat for seat in seats if seat.id not in served]
            room = rooms[launch.template]
            needed = first_fit_decreasing(items, room)
            bought += launch.count
            decreasing += needed
            exceeded += launch.count > needed
            bound += max(ceil(sum(item[kind] for item in items) / room[kind] - 1e-9) for kind in range(4))
        if seats:
            raise SystemExit("a class fits no template")
    return {"bought": bought, "lower_bound": bound, "first_fit": decreasing, "more_than_first_fit": exceeded}


def slowest_analysis() -> tuple[str, float, float]:
    """The slowest lab, its seconds, and the seconds of the slowest below 100 nodes."""
    slowest, small = ("", 0.0), 0.0
    for path in sorted(FOLDER.glob("*.yaml")):
        text = path.read_text()
        began = time.process_time()
        topology = analyse(text)
        spent = time.process_time() - began
        slowest = max(slowest, (path.name, spent), key=lambda each: each[1])
        small = max(small, spent if len(topology.nodes) < 100 else 0.0)
    return (*slowest, small)


def definitions_beside(folder: Path) -> dict[str, NodeDefinition]:
    """The node definitions in the folder of definitions; image definitions have no needs."""
    bodies = [yaml.safe_load(path.read_text()) for path in sorted((folder / "definitions").glob("*.yaml"))]
    return {body["id"]: read_node_definition(body) for body in bodies if "sim" in body}


def analyse_folder(folder: Path) -> None:
    """Print the needs of each lab, and how long its analysis takes: the quickest of three."""
    definitions = definitions_beside(folder)
    print(f"{'lab':44} {'nodes':>5} {'links':>5} {'CPUs':>5} {'GB':>7} {'disk':>5} {'ports':>5} {'ms':>6}")
    for path in sorted(folder.glob("*.yaml")):
        text = path.read_text()
        spent = float("inf")
        for _ in range(3):
            began = time.process_time()
            lab = analyse(text, definitions)
            spent = min(spent, time.process_time() - began)
        needs, unknown = lab.needs, ", ".join(lab.unknown_definitions)
        print(
            f"{path.stem[:44]:44} {needs.nodes:5.0f} {len(lab.links):5} {needs.cpu:5.0f}"
            f" {needs.memory_gb:7.2f} {needs.storage_gb:5.0f} {len(lab.ports):5} {spent * 1e3:6.1f}"
            + (f"  unknown: {unknown}" if unknown else "")
        )


def measure() -> None:
    rows: list[tuple[str, str]] = []
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for workers in GOALS:
        roomy = cpu_of_a_cycle(snapshot(workers, 20, is_full=False))
        full = cpu_of_a_cycle(snapshot(workers, 20, is_full=True))
        varied = cpu_of_a_cycle(snapshot(workers, SESSIONS, is_full=True))
        for name, seconds in (("room", roomy), ("full", full), ("full, all labs differ", varied)):
            rows.append((f"{SESSIONS:,} sessions x {workers:,} workers, {name}", f"{seconds * 1e3:.0f} ms"))
        figures |= {f"room_{workers}": roomy, f"full_{workers}": full, f"varied_{workers}": varied}
        ratios[f"full / room, {workers:,} workers"] = full / roomy
        goal = GOALS[workers]
        what = f"dearest cycle / {goal * 1e3:,.0f} ms, {workers:,} workers (goal: at most 1)"
        ratios[what] = max(roomy, full, varied) / goal
    for definitions in (20, SESSIONS):
        for name, seconds in cpu_of_questions(snapshot(100, definitions, is_full=True)).items():
            what = f"{name}, {definitions} different labs"
            rows.append((f"{what}, {SESSIONS:,} sessions x 100 workers, full", f"{seconds * 1e3:.0f} ms"))
            figures[what.replace(" ", "_").replace(",", "")] = seconds
    bought = purchases()
    figures |= bought
    ratios |= {
        "workers bought / lower bound (goal: at most 1.1)": bought["bought"] / bought["lower_bound"],
        "workers bought / first-fit-decreasing (goal: at most 1)": bought["bought"] / bought["first_fit"],
        "classes that bought more than first-fit-decreasing (goal: 0)": bought["more_than_first_fit"],
    }
    rows.append((f"workers bought for {CLASSES} classes", f"{bought['bought']:g}"))
    name, slowest, small = slowest_analysis()
    rows.append((f"slowest analysis of a lab, {name}", f"{slowest * 1e3:.0f} ms"))
    rows.append(("slowest analysis below 100 nodes", f"{small * 1e3:.0f} ms"))
    figures |= {"analysis": slowest, "analysis_below_100_nodes": small}
    ratios["slowest analysis / 1 s (goal: at most 1)"] = slowest
    ratios["slowest analysis below 100 nodes / 100 ms (goal: at most 1)"] = small / 0.1
    report("placement", rows, ratios, figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--topologies", type=Path, help="a folder of labs to analyse, instead of all else")
    options = parser.parse_args()
    if options.topologies is None:
        measure()
    else:
        analyse_folder(options.topologies)
