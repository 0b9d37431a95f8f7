"""What frames mean, without a socket."""

import random
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange, LabStats, SampleSource
from lcm.worker_controller.monitoring.protocol import (
    EVENT_TYPES,
    MAX_LABS,
    LiveProtocol,
    activity_of,
    read_system_stats,
)
from support.damage import damaged_frames
from support.memory_live import stats_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAB = "2b7f0c3a-52be-4c19-9a44-0be6f1a2d935"
NODE = "91c0f0c3-52be-4c19-9a44-0be6f1a2d935"


class Listening:
    """A protocol with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.changes: list[LabChange] = []
        self.protocol = LiveProtocol(
            WorkerId("w-1"),
            lambda: self.seconds,
            lambda: NOON + timedelta(seconds=self.seconds - 100.0),
            self.changes.append,
        )

    def feed(self, event: Any) -> bool:
        return self.protocol.feed(event if isinstance(event, bytes) else msgspec.json.encode(event))

    def stats(self, percent: float = 7.25) -> bool:
        return self.feed({"event_type": "system_stats", "data": stats_of(percent)})

    def lab_stats(self, lab_id: str = LAB, cpu: float = 3.1) -> bool:
        nodes = {NODE: {"cpu_usage": cpu, "ram_usage": 22.0, "times": {"BOOTED": 35}}}
        links = {"l-1": {"readbytes": 1, "drops": 0}}
        return self.feed(
            {"event_type": "lab_stats", "lab_id": lab_id, "data": {"nodes": nodes, "links": links}}
        )


@pytest.fixture
def listening() -> Listening:
    return Listening()


def state_change(element: str, event: str) -> dict[str, Any]:
    return {
        "event_type": "state_change",
        "lab_id": LAB,
        "element_type": element,
        "element_id": NODE,
        "event": event,
    }


def lab_event(event: str, **data: Any) -> dict[str, Any]:
    return {"event_type": "lab_event", "lab_id": LAB, "event": event, "data": data}


# What counts as activity.


@pytest.mark.parametrize(
    ("event", "category"),
    [
        (state_change("node", "QUEUED"), "queue_node"),
        (state_change("node", "STARTED"), "start_node"),
        (state_change("NODE", "queued"), "queue_node"),
        (state_change("node", "BOOTED"), None),
        (state_change("node", "STOPPED"), None),
        (state_change("interface", "STARTED"), None),
        (state_change("link", "QUEUED"), None),
        (lab_event("state", state="STARTED"), "start_lab"),
        (lab_event("STATE", state="started"), "start_lab"),
        (lab_event("state", state="STOPPED"), "stop_lab"),
        (lab_event("state", state="DEFINED_ON_CORE"), None),
        (lab_event("created"), None),
        (lab_event("modified", lab_title="STARTED"), None),
    ],
)
def test_only_starting_and_stopping_is_activity(
    listening: Listening, event: Any, category: str | None
) -> None:
    assert listening.feed(event)
    [change] = listening.changes
    activity = activity_of(change)
    assert (activity.category if activity else None) == category
    if activity:
        element_id = NODE if category in ("queue_node", "start_node") else None
        assert (activity.at, activity.lab_id, activity.element_id) == (NOON, LAB, element_id)


# Changes.


def test_a_nodes_new_state_is_reported(listening: Listening) -> None:
    listening.feed(state_change("node", "booted"))
    assert listening.changes == [
        LabChange(
            worker_id=WorkerId("w-1"),
            lab_id=LAB,
            element_type="node",
            element_id=NODE,
            event="BOOTED",
            at=NOON,
        )
    ]


def test_a_labs_new_state_is_reported_with_its_title(listening: Listening) -> None:
    listening.feed(lab_event("state", state="STARTED", lab_title="demo", other={"deep": [1]}))
    [change] = listening.changes
    assert (change.element_type, change.element_id, change.event) == ("lab", LAB, "STARTED")
    assert change.data == {"state": "STARTED", "title": "demo"}


def test_a_new_node_is_reported_with_its_label(listening: Listening) -> None:
    listening.feed(
        {
            "event_type": "lab_element_event",
            "lab_id": LAB,
            "event": "created",
            "element_type": "node",
            "element_id": NODE,
            "data": {"label": "a", "node_definition": "alpine", "state": "DEFINED_ON_CORE"},
        }
    )
    [change] = listening.changes
    assert (change.element_type, change.event, change.data["label"]) == ("node", "created", "a")


def test_annotations_have_no_state(listening: Listening) -> None:
    event = {**state_change("annotation", "x"), "event_type": "lab_element_event", "event": "created"}
    assert listening.feed(event)
    assert listening.changes == []


# Statistics: kept undecoded, decoded when they are read.


def test_the_newest_load_can_always_be_read(listening: Listening) -> None:
    assert listening.protocol.latest_system_stats is None
    for percent in (10.0, 20.0, 30.0):
        listening.stats(percent)
        sample = listening.protocol.latest_system_stats
        assert sample is not None
        assert sample.all.cpu is not None
        assert sample.all.cpu.percent == percent


def test_load_is_due_once_in_the_interval_and_is_then_the_newest(listening: Listening) -> None:
    taken = []
    for second in range(40):
        listening.seconds = 100.0 + second
        if second % 3 == 0:
            listening.stats(float(second))
        sample = listening.protocol.take_sample(10.0)
        if sample is not None:
            taken.append((second, sample.cpu_utilization))
    assert taken == [(0, 0.0), (10, 9.0), (20, 18.0), (30, 30.0)]


def test_a_sample_says_when_its_frame_came_and_what_runs(listening: Listening) -> None:
    listening.stats(12.5)
    listening.lab_stats()
    listening.seconds += 4
    sample = listening.protocol.take_sample(10.0)
    assert sample is not None
    assert (sample.worker_id, sample.source, sample.collected_at) == ("w-1", SampleSource.WEBSOCKET, NOON)
    assert (sample.cpu_utilization, sample.memory_utilization, sample.disk_utilization) == (12.5, 25.0, 25.0)
    assert (sample.nodes_count, sample.labs_count) == (4, 1)


def test_right_after_the_login_no_lab_seen_is_unknown_not_none(listening: Listening) -> None:
    listening.stats()
    first = listening.protocol.take_sample(10.0)
    listening.seconds += 10
    listening.stats()
    second = listening.protocol.take_sample(10.0)
    assert first is not None
    assert second is not None
    assert (first.labs_count, second.labs_count) == (None, 0)


def test_each_lab_has_its_own_interval(listening: Listening) -> None:
    listening.lab_stats(LAB, 1.0)
    assert [stats.lab_id for stats in listening.protocol.take_lab_stats(10.0)] == [LAB]
    listening.seconds += 5
    listening.lab_stats(LAB, 2.0)
    listening.lab_stats(NODE, 3.0)
    assert [stats.lab_id for stats in listening.protocol.take_lab_stats(10.0)] == [NODE]
    listening.seconds += 5
    [stats] = listening.protocol.take_lab_stats(10.0)
    assert (stats.lab_id, stats.nodes[NODE].cpu_usage, stats.links["l-1"].readbytes) == (LAB, 2.0, 1.0)
    assert stats.collected_at == NOON + timedelta(seconds=5)


def test_a_silent_lab_runs_no_more_and_a_deleted_one_is_forgotten(listening: Listening) -> None:
    listening.lab_stats(LAB)
    listening.lab_stats(NODE)
    assert listening.protocol.labs_count == 2
    listening.feed(lab_event("deleted"))
    assert listening.protocol.labs_count == 1
    listening.seconds += 31
    assert listening.protocol.labs_count == 0


def test_nothing_is_due_until_the_oldest_report_is_an_interval_old(listening: Listening) -> None:
    def report() -> None:
        listening.stats()
        listening.protocol.take_sample(10.0)
        listening.protocol.take_lab_stats(10.0)
        listening.protocol.schedule_next_report(10.0)

    listening.protocol.schedule_next_report(10.0)
    assert listening.protocol.report_due_at < listening.seconds  # nothing was reported yet
    report()
    assert listening.protocol.report_due_at == listening.seconds + 10
    listening.seconds += 4
    listening.lab_stats(LAB)
    assert listening.protocol.report_due_at < listening.seconds  # a new lab need not wait
    report()
    assert listening.protocol.report_due_at == listening.seconds + 6
    listening.seconds += 6
    report()
    assert listening.protocol.report_due_at == listening.seconds + 4


def test_a_lab_that_runs_no_more_is_forgotten_and_a_new_one_when_it_runs_again(listening: Listening) -> None:
    listening.stats()
    listening.lab_stats(LAB)
    listening.protocol.take_lab_stats(10.0)
    listening.seconds += 31
    listening.stats()
    listening.protocol.take_sample(10.0)
    listening.protocol.schedule_next_report(10.0)
    assert listening.protocol.labs_count == 0
    assert listening.protocol.report_due_at == listening.seconds + 10
    listening.lab_stats(LAB)
    assert listening.protocol.report_due_at < listening.seconds
    assert [stats.lab_id for stats in listening.protocol.take_lab_stats(10.0)] == [LAB]


def test_labs_are_bounded_and_the_one_silent_longest_gives_way(listening: Listening) -> None:
    for number in range(MAX_LABS + 10):
        listening.seconds += 0.001
        listening.lab_stats(f"lab-{number}")
    kept = {stats.lab_id for stats in listening.protocol.take_lab_stats(10.0)}
    assert "lab-9" not in kept
    assert "lab-10" in kept


@pytest.mark.parametrize(
    "head",
    [
        b'{"event_type":"lab_stats","lab_id":"%s","data":{}}',
        b'{"event_type": "lab_stats", "lab_id": "%s", "data": {}}',
        b'{ "event_type" : "lab_stats" , "lab_id" : "%s", "data": {} }',
        b'{"lab_id":"%s","event_type":"lab_stats","data":{}}',
        b'\n{"data":{},"lab_id":"%s","event_type":"lab_stats"}',
    ],
)
@pytest.mark.parametrize("lab_id", [LAB, "short"])
def test_however_a_frame_is_written_it_is_recognised(listening: Listening, head: bytes, lab_id: str) -> None:
    assert listening.feed(head % lab_id.encode())
    assert listening.protocol.counts.lab_stats == 1
    assert [stats.lab_id for stats in listening.protocol.take_lab_stats(10.0)] == [lab_id]


def test_an_odd_head_of_system_stats_is_recognised(listening: Listening) -> None:
    assert listening.feed(b'{"data":{"all":{"cpu":{"percent":5}}},"event_type":"system_stats"}')
    assert listening.protocol.counts.system_stats == 1
    assert listening.protocol.latest_system_stats is not None


def test_no_data_is_unknown_never_zero(listening: Listening) -> None:
    listening.feed(b'{"event_type":"system_stats","data":{"all":{"memory":{"used":0,"total":0}}}}')
    sample = listening.protocol.take_sample(10.0)
    assert sample is not None
    assert (sample.cpu_utilization, sample.memory_utilization, sample.nodes_count) == (None, None, None)


def test_rest_reports_the_same(listening: Listening) -> None:
    stats = read_system_stats(msgspec.json.encode(stats_of(42.0)))
    listening.stats(42.0)
    assert stats == listening.protocol.latest_system_stats
    assert read_system_stats(b"<html>") is None


# Garbage.

NONSENSE = [
    b"",
    b"\x00",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b'{"event_type":1}',
    b'{"event_type":"state_change"}',
    b'{"event_type":"state_change","lab_id":"x","event":"QUEUED","element_type":"node"}',
    b'{"event_type":"lab_event","lab_id":"x","event":"state","data":{}}',
    b'{"event_type":"lab_event","lab_id":"x","event":"state","data":{"state":7}}',
    b'{"event_type":"state_change","lab_id":"\xff\xfe","event":"x"}',
    b'{"event_type":"lab_event","lab_id":"' + b"x" * 65 + b'","event":"created"}',
    b"[" * 100_000,
    b'{"event_type":' + b"[" * 100_000,
]


@pytest.mark.parametrize("payload", NONSENSE)
def test_garbage_is_counted_and_changes_nothing(listening: Listening, payload: bytes) -> None:
    assert not listening.feed(payload)
    assert listening.protocol.counts.garbage == 1
    assert listening.protocol.last_message_at is None
    assert listening.changes == []


def test_unknown_events_are_counted_and_ignored(listening: Listening) -> None:
    assert listening.feed(b'{"event_type":"ping"}')
    assert listening.feed(b'{"event_type":"system_event","data":{"x":1}}')
    assert listening.protocol.counts.unknown == 2
    assert listening.protocol.last_message_at == 100.0


@pytest.mark.parametrize(
    "data", [b"7}", b'{"all":7}}', b'{"all":{"cpu":{"percent":"x"}}}}', b"{" * 5000, b"\xff}", b""]
)
def test_statistics_that_turn_out_to_be_garbage_are_dropped_when_read(
    listening: Listening, data: bytes
) -> None:
    listening.feed(b'{"event_type":"system_stats","data":' + data)
    assert listening.protocol.take_sample(10.0) is None
    assert listening.protocol.latest_system_stats is None
    assert listening.protocol.counts.garbage == 1
    listening.stats(5.0)
    assert listening.protocol.take_sample(10.0) is not None


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_no_bytes_whatsoever_raise(payload: bytes) -> None:
    listening = Listening()
    listening.feed(payload)
    assert listening.protocol.counts.total == 1


TEXT = st.text("aä\x00☃\ud800", max_size=80)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
    max_leaves=20,
)
KEYS = ("lab_id", "element_type", "element_id", "event", "data")


@pytest.mark.no_cover  # many times what is measured elsewhere
@settings(max_examples=300)
@given(st.sampled_from([*EVENT_TYPES, "x"]), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_no_event_of_any_shape_raises(event_type: str, fields: dict[str, Any]) -> None:
    listening = Listening()
    try:
        payload = msgspec.json.encode({"event_type": event_type, **fields})
    except (UnicodeEncodeError, OverflowError):
        return
    listening.feed(payload)
    msgspec.json.encode(listening.protocol.take_sample(0.0))
    msgspec.json.encode(listening.protocol.take_lab_stats(0.0))
    msgspec.json.encode(listening.changes)


@pytest.mark.parametrize("bytes_read", [2**63 - 1, 2**64, -(10**40), 1e300, 0.5])
def test_every_number_that_a_link_reports_can_be_passed_on(listening: Listening, bytes_read: float) -> None:
    listening.feed(
        b'{"event_type":"lab_stats","lab_id":"%s","data":{"links":{"l-1":{"readbytes":%s}}}}'
        % (LAB.encode(), str(bytes_read).encode())
    )
    for stats in listening.protocol.take_lab_stats(10.0):
        assert msgspec.json.decode(msgspec.json.encode(stats), type=LabStats) == stats


@pytest.mark.no_cover  # many times what is measured elsewhere
def test_a_hundred_thousand_damaged_frames_leave_the_memory_flat() -> None:
    damaged = damaged_frames(random.Random(4))
    listening = Listening()
    listening.stats()
    listening.lab_stats()

    def storm(frames: int) -> None:
        for number in range(frames):
            listening.seconds += 0.01
            listening.feed(damaged())
            if number % 100 == 0:
                listening.protocol.take_sample(10.0)
                list(listening.protocol.take_lab_stats(10.0))
                listening.changes.clear()

    storm(20_000)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    storm(80_000)
    listening.changes.clear()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert listening.protocol.counts.total >= 100_000
    assert after - before < 1_000_000
