"""The whole story of a class, with Cisco's own client as the judge of what is on each CML.

Every seat gets its lab although the lablet controller is killed while it brings them up, and killed again
while it removes them; nothing is left behind. `make soak-class` runs a class of 30.
"""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from support.api import Json
from support.cml_judge import JudgedLab
from support.ha import now, printed_figures
from support.processes import eventually
from support.school import School, running_school

SEATS: Final = int(os.environ.get("LCM_CLASS_SEATS", "12"))
WORKERS: Final = 3
SLOW_IMPORT_SECONDS: Final = 3.0
"""The lab exists at once, and its id is known to nobody while the controller is killed."""
SLOW_STOP_SECONDS: Final = 60.0
"""Of the simulation, which runs faster."""
STORY_SECONDS: Final = 60.0 + 2 * SEATS

Ports = dict[str, dict[str, int]]

pytestmark = [
    pytest.mark.timeout(2 * STORY_SECONDS),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of httpx, by a client that verifies nothing
]


async def test_a_class_gets_its_labs_and_leaves_none_although_its_controller_is_killed_twice(
    tmp_path: Path,
) -> None:
    async with running_school(tmp_path) as school:
        workers = await school.add_workers(WORKERS)
        own = school.judges[workers[0]["id"]].start_own_lab("lcm-of-somebody-else")
        with printed_figures(f"class of {SEATS} on {WORKERS} workers") as figures:
            batch, seats = await _brought_up_over_a_kill(school, workers, figures)
            ports = await school.granted_ports()
            _assert_one_lab_for_each_seat(school, seats, ports, own)
            await _ended_over_a_kill(school, workers, batch, figures)
        await _assert_nothing_left(school, seats, ports, own)


async def _brought_up_over_a_kill(
    school: School, workers: list[Json], figures: dict[str, Any]
) -> tuple[Json, list[Json]]:
    await school.disturb(workers[0], kind="slow", seconds=SLOW_IMPORT_SECONDS, path="/api/v0/import")
    began = now()
    batch = await school.create_class(SEATS, WORKERS)

    async def are_some_imported() -> bool:
        labs = await school.labs_of_sessions()
        return labs[workers[0]["id"]] > 0 and sum(labs.values()) > labs[workers[0]["id"]]

    await eventually(are_some_imported)
    school.kill_lablet_controller()
    seats = await school.seats(batch)
    assert any(seat["lab"] and seat["lab"]["lab_id"] is None for seat in seats), "no import was under way"
    figures["labs when it was killed"] = sum((await school.labs_of_sessions()).values())
    await school.heal()
    killed = now()
    school.start_lablet_controller()
    seats = await school.seats_in(batch, "running", within_seconds=STORY_SECONDS)
    figures["class created to all ready"] = f"{now() - began:.1f} s"
    figures["killed to all ready"] = f"{now() - killed:.1f} s"
    figures["adopted"] = adopted = sum(seat["lab"]["is_adopted"] for seat in seats)
    assert adopted > 0
    return batch, seats


def _assert_one_lab_for_each_seat(school: School, seats: list[Json], granted: Ports, own: JudgedLab) -> None:
    """And what every port that was granted leads to is the node that it was granted for."""
    found = {lab.id: (worker, lab) for worker, labs in school.judged().items() for lab in labs.values()}
    assert found.pop(own.id)[1] == own
    assert found.keys() == {seat["lab"]["lab_id"] for seat in seats}
    assert len(found) == SEATS
    for seat in seats:
        worker, lab = found[seat["lab"]["lab_id"]]
        ports = granted[seat["id"]]
        assert worker == seat["worker_id"]
        assert lab.title == seat["lab"]["title"]
        assert set(lab.nodes.values()) == {"BOOTED"}
        assert lab.tags == {
            "r1": (f"serial:{ports['r1_serial']}",),
            "lan": ("kept",),
            "pc1": (f"serial:{ports['pc1_serial']}", f"vnc:{ports['pc1_vnc']}"),
        }
        for node in ("r1", "pc1"):
            assert node in school.judges[worker].greeting(ports[f"{node}_serial"])
        assert school.judges[worker].is_open(ports["pc1_vnc"])
    taken = [(seat["worker_id"], port) for seat in seats for port in granted[seat["id"]].values()]
    assert len(taken) == len(set(taken)) == 3 * SEATS


async def _ended_over_a_kill(
    school: School, workers: list[Json], batch: Json, figures: dict[str, Any]
) -> None:
    await school.disturb(workers[1], kind="slow_stop", seconds=SLOW_STOP_SECONDS)
    began = now()
    await school.api.accepted("POST", f"/api/lablet-batches/{batch['id']}/end")

    async def are_some_removed() -> bool:
        labs = await school.labs_of_sessions()
        return labs[workers[1]["id"]] > 0 and sum(labs.values()) < SEATS

    await eventually(are_some_removed)
    school.kill_lablet_controller()
    figures["labs when it was killed again"] = sum((await school.labs_of_sessions()).values())
    school.start_lablet_controller()
    await school.seats_in(batch, "terminated", within_seconds=STORY_SECONDS)
    figures["end to nothing left"] = f"{now() - began:.1f} s"


async def _assert_nothing_left(school: School, seats: list[Json], granted: Ports, own: JudgedLab) -> None:
    assert [lab for labs in school.judged().values() for lab in labs.values()] == [own]
    for seat in seats:
        judge = school.judges[seat["worker_id"]]
        assert not any(judge.is_open(port) for port in granted[seat["id"]].values())
    for worker in await school.workers():
        assert (worker["sessions"], worker["ports"]) == ([], [])
        assert not any(worker["allocated_capacity"].values())
