"""The record of a lab follows from its reported changes, in whatever order they arrive."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import MAX_NODES_PER_LAB, MAX_TEXT, LabChange, LabRecord, lab_after

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def change(element_type: str, element_id: str, event: str, seconds: float = 0, **data: str) -> LabChange:
    return LabChange(
        worker_id=WorkerId("w"),
        lab_id="l",
        element_type=element_type,
        element_id=element_id,
        event=event,
        at=T0 + timedelta(seconds=seconds),
        data=data,
    )


def lab(event: str, seconds: float = 0, **data: str) -> LabChange:
    return change("lab", "l", event, seconds, **data)


def node(node_id: str, event: str, seconds: float = 0, **data: str) -> LabChange:
    return change("node", node_id, event, seconds, **data)


def after(*changes: LabChange, record: LabRecord | None = None) -> LabRecord:
    result = lab_after(record, changes)
    assert result is not None
    return result


def states(record: LabRecord) -> dict[str, str | None]:
    return {node_id: node.state for node_id, node in record.nodes.items()}


def test_a_lab_that_is_seen_being_created_is_whole() -> None:
    record = after(lab("created", title="BGP", state="DEFINED_ON_CORE"))
    assert (record.title, record.state, record.discovery_wanted) == ("BGP", "DEFINED_ON_CORE", False)


@pytest.mark.parametrize("first", [lab("STARTED"), node("n1", "QUEUED"), change("link", "x", "STARTED")])
def test_a_lab_that_is_met_in_the_middle_of_its_life_wants_to_be_discovered(first: LabChange) -> None:
    assert after(first).discovery_wanted


def test_nodes_appear_change_state_keep_their_label_and_go() -> None:
    record = after(
        lab("created"),
        node("n1", "created", 1, label="R1", state="DEFINED_ON_CORE"),
        node("n2", "QUEUED", 1, label="R2"),
        node("n1", "STARTED", 2),
        node("n2", "deleted", 3),
    )
    assert states(record) == {"n1": "STARTED"}
    assert record.nodes["n1"].label == "R1"


def test_a_deleted_lab_is_gone() -> None:
    assert lab_after(after(lab("created")), [lab("deleted", 1)]) is None
    assert lab_after(None, [lab("deleted")]) is None


def test_what_happens_to_a_cable_changes_nothing_that_is_kept() -> None:
    record = after(lab("created"))
    assert after(change("interface", "i", "STARTED", 1), record=record) == record


def test_an_older_word_does_not_undo_a_newer_one() -> None:
    record = after(lab("STARTED", 5), node("n1", "BOOTED", 5))
    late = after(lab("STOPPED", 4), node("n1", "QUEUED", 4), record=record)
    assert (late.state, states(late)) == ("STARTED", {"n1": "BOOTED"})


@given(
    st.lists(
        st.builds(
            node,
            st.sampled_from(["a", "b"]),
            st.sampled_from(["QUEUED", "STARTED", "BOOTED", "STOPPED"]),
            st.integers(0, 50),
        )
    )
)
def test_the_same_report_again_changes_nothing(changes: list[Any]) -> None:
    in_order = sorted(changes, key=lambda change: change.at)
    once = lab_after(None, in_order)
    assert lab_after(once, in_order[-1:]) == once


def test_a_lab_keeps_a_bounded_number_of_nodes_and_bounded_texts() -> None:
    record = after(lab("created", title="x" * 10_000))
    assert record.title is not None
    assert len(record.title) == MAX_TEXT
    record = after(
        *(node(f"n{number}", "STARTED") for number in range(MAX_NODES_PER_LAB + 10)), record=record
    )
    assert len(record.nodes) == MAX_NODES_PER_LAB
    assert states(after(node("n0", "STOPPED", 1), record=record))["n0"] == "STOPPED"
