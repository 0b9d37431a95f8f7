"""The sheet of a class: every seat with its ports, for its creator and operators, as JSON or as a table."""

import csv
from io import StringIO
from typing import Any

import pytest
from msgspec.structs import replace

from lcm.domain.lablet.states import RUNNING
from lcm.rest.lablet_access import COLUMNS
from lcm.web.csv_text import csv_text
from support.canaries import Canaries
from support.lablet_bench import HOST, LabletBench
from support.people import Answer

LOGIN = {"username": "=cmd|'/C calc'!A0", "password": "a-canary-of-the-class"}


class ClassBench(LabletBench):
    """Has a class besides."""

    batch_id = ""


@pytest.fixture
async def bench() -> ClassBench:
    """A class of two seats, of which the first runs."""
    bench = ClassBench()
    await bench.open()
    definition_id = (await bench.session()).definition_id
    await bench.admin.put(f"/api/lablet-definitions/{definition_id}/access", LOGIN)
    body = {"definition": "branch", "name": "class", "count": 2, "owners": [bench.viewer.id, "+bob"]}
    batch = (await bench.operator.post("/api/lablet-sessions/batch", body)).body["batch"]
    bench.batch_id, bench.session_id = batch["id"], batch["sessions"][0]["id"]
    await bench.place()
    await bench.drive(RUNNING)
    return bench


async def sheet(bench: ClassBench, query: str = "", **headers: str) -> Answer:
    return await bench.operator.send("GET", f"/api/lablet-batches/{bench.batch_id}/access{query}", **headers)


def table(answer: Answer) -> list[dict[str, str]]:
    assert answer.headers["content-type"].startswith("text/csv")
    return list(csv.DictReader(StringIO(answer.text.decode(), newline="")))


async def test_every_seat_has_its_ports_or_the_reason_why_not(bench: ClassBench) -> None:
    found: Any = (await sheet(bench)).body
    assert (found["id"], found["name"], found["definition_name"]) == (bench.batch_id, "class", "branch")
    first, second = found["seats"]
    assert (first["seat"], first["owner_id"], first["note"]) == (1, bench.viewer.id, "")
    own = await bench.viewer.get(f"/api/lablet-sessions/{bench.session_id}/access")
    assert first["access"] == own.body
    assert (second["seat"], second["status"], second["access"]) == (2, "pending_scheduling", None)
    assert "/explain says why" in second["note"]


@pytest.mark.parametrize(("query", "accept"), [("?format=csv", "*/*"), ("", "text/csv, */*;q=0.1")])
async def test_as_a_table_it_has_a_row_for_each_seat_and_port(
    bench: ClassBench, query: str, accept: str
) -> None:
    answer = await sheet(bench, query, accept=accept)
    first, second = table(answer)
    assert tuple(first) == COLUMNS
    assert (first["seat"], first["label"], first["host"]) == ("1", "pc1", HOST)
    assert first["uri"] == f"telnet://{HOST}:{first['port']}"
    assert (second["seat"], second["port"], second["status"]) == ("2", "", "pending_scheduling")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.headers["cache-control"] == "no-store"


async def test_no_cell_is_taken_for_a_formula(bench: ClassBench) -> None:
    first, second = table(await sheet(bench, "?format=csv"))
    assert (first["username"], second["owner"]) == (f"'{LOGIN['username']}", "'+bob")
    dangerous = ["=1", "+1", "-1", "@a", "\ta", "\ra", "\na"]
    [row] = csv.reader(StringIO(csv_text(dangerous, []), newline=""))
    assert row == dangerous
    [_, row] = csv.reader(StringIO(csv_text(dangerous, [[*dangerous, 'a "b", c', None, 7]]), newline=""))
    assert row == [*(f"'{each}" for each in dangerous), 'a "b", c', "", "7"]


async def test_only_its_creator_and_operators_get_the_sheet(bench: ClassBench) -> None:
    path = f"/api/lablet-batches/{bench.batch_id}/access"
    refused = await bench.viewer.get(path)
    assert (refused.status, refused.kind) == (404, "not-found")
    assert (await bench.admin.get(path)).status == 200
    assert (await bench.admin.get("/api/lablet-batches/none/access")).status == 404
    assert (await sheet(bench, "?format=xml")).status == 422

    def handed_over(batch: Any) -> Any:
        return replace(batch, creator_id=bench.viewer.id)

    await bench.records.batches.change(bench.batch_id, handed_over)
    assert len((await bench.viewer.get(path)).body["seats"]) == 2


async def test_a_class_itself_shows_no_access(bench: ClassBench) -> None:
    canaries = Canaries(dict(LOGIN))
    for path in (f"/api/lablet-batches/{bench.batch_id}", "/api/lablet-sessions"):
        canaries.collect(path, (await bench.operator.get(path)).text)
    assert canaries.found() == []
