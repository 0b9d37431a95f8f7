"""What a lab held is kept at its end, once and within five minutes, and never holds up the end."""

import hashlib
from datetime import timedelta
from typing import Any, Final

import pytest
import yaml
from msgspec.structs import replace

from lcm.control_plane.commands.lablets.archive_sessions import KEPT_FOR, Archive
from lcm.control_plane.records.evidence import KIND
from lcm.domain.errors import LabRefused, Unreachable
from lcm.domain.lablet.lab import LabStep, StepStatus
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import ARCHIVED, COLLECTING, ENDED, FAILED, RUNNING, STOPPING, TERMINATED
from lcm.domain.lifecycle import STOPPED as WORKER_STOPPED
from support.lablet_bench import Killed, LabletBench
from support.virtual_time import WrongClock

SECRET: Final = "enable secret swordfish"
FILE: Final = {"name": "Main", "content": f"hostname pc1\n{SECRET}\n"}


async def bench_that_collects(what: str = "configs") -> LabletBench:
    bench = LabletBench()
    bench.options = {"collect": what}
    await bench.open()
    await bench.drive(RUNNING)
    [lab] = bench.cml.labs.all()
    for node in lab.nodes.values():
        if node.label == "pc1":
            node.configuration = [FILE]
    return bench


@pytest.fixture
async def bench() -> LabletBench:
    return await bench_that_collects()


async def until_over(bench: LabletBench) -> LabletSession:
    """Let time pass until the session ends by itself."""
    return await bench.drive(*ENDED, steps=300)


async def evidence(bench: LabletBench) -> Any:
    path = f"/api/lablet-sessions/{bench.session_id}/evidence"
    [item] = (await bench.operator.get(path)).body["items"]
    return item, await bench.operator.get(f"{path}/{item['n']}")


async def test_the_configurations_of_a_lab_are_kept_at_its_end(bench: LabletBench) -> None:
    ended = await until_over(bench)
    item, file = await evidence(bench)
    assert [change.target for change in ended.state_history][-3:] == [COLLECTING, STOPPING, ARCHIVED]
    assert (file.status, file.headers["content-type"]) == (200, "text/yaml; charset=utf-8")
    assert file.headers["cache-control"] == "no-store"
    assert file.headers["content-disposition"].startswith("attachment; filename=")
    assert (item["kind"], item["bytes"]) == ("configs", len(file.text))
    assert item["sha256"] == hashlib.sha256(file.text).hexdigest()
    nodes = {node["label"]: node["configuration"] for node in yaml.safe_load(file.text)["nodes"]}
    assert nodes["pc1"] == [FILE]
    assert ended.steps[LabStep.COLLECT].status is StepStatus.COMPLETED
    assert bench.titles() == []


@pytest.mark.parametrize("minutes", [-6, 6])
async def test_a_controller_whose_clock_is_wrong_collects_all_the_same(minutes: int) -> None:
    bench = await bench_that_collects()
    bench.controller_clock = WrongClock(timedelta(minutes=minutes))
    await bench.restart_controller()
    ended = await until_over(bench)
    assert ended.steps[LabStep.COLLECT].status is StepStatus.COMPLETED
    assert (await evidence(bench))[1].status == 200


async def test_nodes_without_a_machine_are_asked_for_nothing_and_a_refusal_is_skipped(
    bench: LabletBench,
) -> None:
    bench.labs.failing["extract_configuration"] = LabRefused(400, "not for this kind")
    ended = await until_over(bench)
    assert bench.calls.count("extract_configuration") == 1
    assert ended.steps[LabStep.COLLECT].detail == "1 of 1 configurations were not extracted"
    assert len(ended.evidence) == 1


async def test_a_topology_is_kept_without_asking_its_nodes() -> None:
    bench = await bench_that_collects("topology")
    ended = await until_over(bench)
    assert "extract_configuration" not in bench.calls
    assert [kept.kind for kept in ended.evidence] == ["topology"]


async def test_nothing_is_kept_where_the_definition_keeps_nothing() -> None:
    bench = await bench_that_collects("none")
    ended = await until_over(bench)
    assert (ended.evidence, "download_lab" in bench.calls) == ((), False)
    assert COLLECTING not in [change.target for change in ended.state_history]


async def test_a_session_that_a_person_ends_is_collected_once(bench: LabletBench) -> None:
    await bench.end()
    await bench.drive(COLLECTING, STOPPING)
    await bench.end()
    assert (await bench.drive(*ENDED)).status is TERMINATED
    assert bench.calls.count("report_evidence") == 1


async def test_what_was_collected_shows_in_no_list_event_log_or_audit(
    bench: LabletBench, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = bench.parts.hub.stream(None)
    await anext(stream)
    await until_over(bench)
    events = b""
    while b"event: lablet.session.ended" not in events:
        events += await anext(stream)
    answers = [
        (await bench.operator.get(path)).text
        for path in (
            "/api/lablet-sessions?include_ended=true",
            f"/api/lablet-sessions/{bench.session_id}",
            f"/api/lablet-sessions/{bench.session_id}/history",
            "/api/lablet-audit",
        )
    ]
    await stream.aclose()
    assert b"collecting" in events
    assert all(b"swordfish" not in text for text in (events, *answers))
    assert "swordfish" not in "".join(capfd.readouterr())
    sessions = await bench.store.list_all("lablet-session")
    assert all(b"swordfish" not in document.body for document in sessions)


async def test_a_file_that_is_not_a_persons_own_is_not_found(bench: LabletBench) -> None:
    await until_over(bench)
    path = f"/api/lablet-sessions/{bench.session_id}/evidence"
    assert (await bench.viewer.get(path)).status == 404
    assert (await bench.viewer.get(f"{path}/1")).status == 404
    assert (await bench.operator.get(f"{path}/2")).status == 404


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_controller_may_die_before_and_after_every_call_of_a_collection(is_done: bool) -> None:
    bench = await bench_that_collects()
    since = len(bench.calls)
    await bench.end()
    await bench.drive(*ENDED)
    for number in range(since + 1, len(bench.calls) + 1):
        bench = await bench_that_collects()
        died: list[str] = []

        def die(at: int, name: str, done: bool, number: int = number, died: list[str] = died) -> None:
            if at == number and done is is_done and not died:
                died.append(name)
                raise Killed

        bench.disturb = die
        await bench.end()
        ended = await bench.drive(*ENDED)
        assert (ended.status, len(ended.evidence), bench.titles()) == (TERMINATED, 1, []), (number, died)
        item, file = await evidence(bench)
        assert item["sha256"] == hashlib.sha256(file.text).hexdigest(), (number, died)


@pytest.mark.parametrize("name", ["extract_configuration", "download_lab", "report_evidence", "move"])
async def test_the_answer_of_every_call_of_a_collection_may_be_lost(bench: LabletBench, name: str) -> None:
    lost: list[int] = []

    def lose(number: int, called: str, is_done: bool) -> None:
        if called == name and is_done and not lost:
            lost.append(number)
            raise Unreachable("no answer")

    bench.disturb = lose
    await bench.end()
    ended = await bench.drive(*ENDED)
    assert (bool(lost), len(ended.evidence)) == (True, 1)


async def test_a_lab_that_cannot_be_downloaded_is_removed_after_three_tries(bench: LabletBench) -> None:
    bench.labs.failing["download_lab"] = Unreachable("502")
    await bench.end()
    since = bench.clock.now()
    ended = await bench.drive(*ENDED)
    assert (ended.status, bench.titles()) == (TERMINATED, [])
    assert bench.calls.count("download_lab") == 3
    assert ended.steps[LabStep.COLLECT].status is StepStatus.FAILED
    assert "502" in ended.steps[LabStep.COLLECT].detail
    assert bench.clock.now() - since < timedelta(minutes=2)


async def test_a_node_that_never_answers_costs_its_configuration_and_not_the_file(bench: LabletBench) -> None:
    bench.labs.is_extraction_hanging = True
    await bench.end()
    since = bench.clock.now()
    ended = await bench.drive(STOPPING)
    assert (len(ended.evidence), bench.clock.now() - since < timedelta(seconds=300)) == (1, True)


async def test_a_collection_on_a_worker_that_stopped_is_given_up_after_five_minutes(
    bench: LabletBench,
) -> None:
    await bench.change_worker(lambda worker: replace(worker, status=WORKER_STOPPED))
    await bench.end()
    since = bench.clock.now()
    session = await bench.drive(STOPPING)
    waited = bench.clock.now() - since
    assert timedelta(seconds=300) <= waited < timedelta(seconds=310)
    assert "not collected in time" in session.steps[LabStep.COLLECT].detail


async def test_a_session_that_has_failed_is_not_collected(bench: LabletBench) -> None:
    [lab] = bench.cml.labs.all()
    bench.cml.labs.stop(lab, bench.clock.now().timestamp(), "x")
    await bench.clock.sleep(60)
    bench.cml.labs.advance(bench.clock.now().timestamp())
    bench.cml.labs.wipe(lab, bench.clock.now().timestamp(), "x")
    bench.cml.labs.delete(lab)
    assert (await bench.drive(*ENDED)).status is FAILED
    assert "download_lab" not in bench.calls


async def test_an_end_that_is_being_carried_out_is_not_extended() -> None:
    bench = LabletBench()
    bench.options = {"collect": "configs"}
    await bench.open(timeslot=bench.slot(in_minutes=10, minutes=30))
    bench.labs.failing["download_lab"] = Unreachable("502")
    session = await bench.drive(COLLECTING, steps=300)
    assert session.ends_at is not None
    later = {"end": (session.ends_at + timedelta(minutes=10)).isoformat()}
    answer = await bench.operator.post(f"/api/lablet-sessions/{bench.session_id}/extend", later)
    assert answer.status == 409


async def test_what_was_kept_goes_with_its_session(bench: LabletBench) -> None:
    await until_over(bench)
    archive = Archive(bench.records)
    await bench.clock.sleep(3_600)
    await archive.run_pass()
    assert len(await bench.store.list_all(KIND)) == 1
    assert (await evidence(bench))[1].status == 200
    await bench.clock.sleep(KEPT_FOR.total_seconds())
    await archive.run_pass()
    assert await bench.store.list_all(KIND) == []
