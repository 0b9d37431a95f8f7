"""Whose a lab is follows from its recorded id or its whole marker; when in doubt it is not removed."""

from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from lcm.domain.lablet.lab import SessionLab
from lcm.domain.lablet.lab_discovery import listed, summarize, swept, unlisted
from lcm.domain.lablet.lab_standing import (
    DUPLICATE_FOR,
    LEAKED_FOR,
    LeakPolicy,
    Standing,
    stand,
    why_kept,
)
from lcm.domain.lablet.listed_lab import (
    LabAction,
    LabContents,
    LabKind,
    LabMark,
    LabRequest,
    LeakReason,
    ListedLab,
    ListedNode,
)
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import ENDED, SessionStatus
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabNode, LabRecord
from support.lablets import NOON, claim, session

FLEET: Final = "f1"
REMOVE: Final = LeakPolicy.REMOVE


def mark(generation: int = 1, **changes: Any) -> LabMark:
    return replace(LabMark(session_id="s", generation=generation, fleet_id=FLEET), **changes)


def owning(lab_id: str | None = "l1", generation: int = 1, **changes: Any) -> LabletSession:
    lab = SessionLab(title="t", generation=generation, intent_at=NOON, instance_id="i-1", lab_id=lab_id)
    status = SessionStatus.RUNNING
    return session(**{"status": status, "lab": lab, "lab_generation": generation, **changes})


def standing(
    lab_id: str, marked_as: LabMark | None, owner: LabletSession | None, *, instance_id: str = "i-1"
) -> Standing:
    is_recorded = owner is not None and owner.lab is not None and owner.lab.lab_id == lab_id
    return stand(
        lab_id,
        marked_as,
        instance_id,
        fleet_id=FLEET,
        recorded_by=owner if is_recorded else None,
        marked=owner,
    )


def test_a_recorded_lab_is_its_sessions_also_if_a_person_renamed_it() -> None:
    assert standing("l1", None, owning()) == Standing(LabKind.SESSION, "s")


def test_the_lab_of_an_import_that_is_under_way_is_its_sessions() -> None:
    assert standing("l1", mark(), owning(lab_id=None)).kind is LabKind.SESSION


@pytest.mark.parametrize("marked_as", [None, mark(fleet_id="another fleet")])
def test_a_lab_without_the_whole_marker_of_this_fleet_is_foreign(marked_as: LabMark | None) -> None:
    assert standing("l2", marked_as, owning()).kind is LabKind.FOREIGN


@pytest.mark.parametrize("status", sorted(ENDED))
def test_a_lab_of_a_session_that_has_ended_is_leaked(status: SessionStatus) -> None:
    found = standing("l1", mark(), owning(status=status))
    assert found == Standing(LabKind.LEAKED, "s", LeakReason.SESSION_ENDED)


@pytest.mark.parametrize(
    ("owner", "marked_as", "reason"),
    [
        (None, mark(), LeakReason.SESSION_UNKNOWN),
        (owning("l9", 2), mark(1), LeakReason.SESSION_MOVED_ON),
        (owning(lab=None), mark(1), LeakReason.SESSION_MOVED_ON),
        (owning("l9", 1), mark(1), LeakReason.DUPLICATE),
        (owning("l9", 1, status=SessionStatus.TERMINATED), mark(1), LeakReason.DUPLICATE),
        (owning("l9", 1), mark(2), LeakReason.RECORD_OLDER),
    ],
)
def test_a_lab_is_leaked_if_its_session_has_another(
    owner: LabletSession | None, marked_as: LabMark, reason: LeakReason
) -> None:
    assert standing("l1", marked_as, owner) == Standing(LabKind.LEAKED, "s", reason)


def test_a_lab_on_another_instance_than_recorded_is_not_the_sessions() -> None:
    assert standing("l1", mark(), owning(), instance_id="i-2").kind is LabKind.LEAKED


def record(number: int = 1, leak: LeakReason | None = LeakReason.SESSION_ENDED, **changes: Any) -> LabRecord:
    made = LabRecord(
        worker_id=WorkerId("w1"),
        lab_id=f"l{number}",
        title="a lab",
        state="STARTED",
        updated_at=NOON,
        kind=LabKind.LEAKED if leak else LabKind.FOREIGN,
        leak=leak,
        session_id="s" if leak else None,
        leaked_since=NOON if leak else None,
        first_seen_at=NOON,
    )
    return replace(made, **changes)


def foreign(count: int) -> list[LabRecord]:
    return [record(100 + number, None) for number in range(count)]


def test_a_leaked_lab_is_removed_only_after_ten_minutes_of_full_listings() -> None:
    early = swept(record(), [record()], REMOVE, NOON + LEAKED_FOR - timedelta(seconds=1))
    assert early.request is None
    removal = swept(record(), [record()], REMOVE, NOON + LEAKED_FOR).request
    assert removal is not None
    assert (removal.action, removal.leak) == (LabAction.REMOVE, LeakReason.SESSION_ENDED)


def test_a_partial_listing_does_not_begin_to_count_a_lab_as_leaked() -> None:
    seen = ListedLab(lab_id="l1", title="t", state="STARTED", mark=mark())
    leaked = Standing(LabKind.LEAKED, "s", LeakReason.SESSION_ENDED)
    options: dict[str, Any] = {"worker_id": WorkerId("w1"), "taken_at": NOON, "now": NOON}
    assert listed(None, seen, leaked, is_full=False, **options).leaked_since is None
    assert listed(None, seen, leaked, is_full=True, **options).leaked_since == NOON


def test_a_lab_that_is_not_leaked_any_more_is_not_removed() -> None:
    requested = swept(record(), [record()], REMOVE, NOON + LEAKED_FOR)
    seen = ListedLab(lab_id="l1", title="t", state="STARTED", mark=mark())
    options: dict[str, Any] = {"worker_id": WorkerId("w1"), "is_full": True, "taken_at": NOON, "now": NOON}
    adopted = listed(requested, seen, Standing(LabKind.SESSION, "s"), **options)
    assert (adopted.request, adopted.leak, adopted.leaked_since) == (None, None, None)


def test_what_a_person_requested_of_a_lab_is_not_withdrawn_by_a_listing() -> None:
    asked = LabRequest(action=LabAction.STOP, asked_at=NOON, by="ann")
    seen = ListedLab(lab_id="l1", title="t", state="STARTED")
    options: dict[str, Any] = {"worker_id": WorkerId("w1"), "is_full": True, "taken_at": NOON, "now": NOON}
    found = listed(record(request=asked), seen, Standing(LabKind.FOREIGN), **options)
    assert found.request == asked


def test_a_few_labs_of_ended_sessions_are_removed_whatever_their_share() -> None:
    labs = [record(number) for number in range(5)]
    assert why_kept(labs[0], labs, REMOVE) == ""


def test_more_than_five_leaked_labs_at_once_are_only_reported() -> None:
    labs = [record(number) for number in range(6)] + foreign(100)
    assert "more than 5" in why_kept(labs[0], labs, REMOVE)


def test_labs_of_unknown_sessions_are_only_reported_if_they_are_more_than_a_fifth() -> None:
    unknown = record(1, LeakReason.SESSION_UNKNOWN)
    assert "more than 20%" in why_kept(unknown, [unknown, *foreign(3)], REMOVE)
    assert why_kept(unknown, [unknown, *foreign(4)], REMOVE) == ""


def test_a_lab_that_is_newer_than_the_records_is_never_removed() -> None:
    newer = record(1, LeakReason.RECORD_OLDER)
    assert "restore" in why_kept(newer, [newer, *foreign(99)], REMOVE)


def test_a_duplicate_is_removed_after_a_minute_and_only_if_it_was_never_started() -> None:
    copy = record(1, LeakReason.DUPLICATE, state="DEFINED_ON_CORE")
    assert swept(copy, [copy], REMOVE, NOON + DUPLICATE_FOR).request is not None
    used = replace(copy, state="STOPPED")
    assert swept(used, [used], REMOVE, NOON + timedelta(hours=1)).request is None


def test_removal_can_be_switched_off_and_withdraws_what_was_requested() -> None:
    requested = swept(record(), [record()], REMOVE, NOON + LEAKED_FOR)
    kept = swept(requested, [requested], LeakPolicy.REPORT, NOON + LEAKED_FOR)
    assert (kept.request, kept.leak_kept) == (None, "LEAKED_LABS is set to report")


def absent(lab: LabRecord, seconds: float, *, is_owned: bool = False) -> LabRecord | None:
    moment = NOON + timedelta(seconds=seconds)
    return unlisted(lab, taken_at=moment, last_listed_at=NOON, is_owned=is_owned, now=moment)


def test_one_listing_without_a_lab_proves_nothing_and_two_remove_its_record() -> None:
    once = absent(record(1, None), 300)
    assert once is not None
    assert (once.missing_since, once.last_seen_at) == (NOON + timedelta(seconds=300), NOON)
    assert absent(once, 330) == once
    assert absent(once, 600) is None


def test_a_lab_of_a_session_that_is_gone_becomes_orphaned_and_stays_recorded() -> None:
    once = absent(record(1, None, kind=LabKind.SESSION), 300, is_owned=True)
    assert once is not None
    twice = absent(once, 600, is_owned=True)
    assert twice is not None
    assert twice.kind is LabKind.ORPHANED


def test_a_lab_that_was_created_after_the_listing_is_not_missing() -> None:
    new = LabRecord(worker_id=WorkerId("w1"), lab_id="l1", updated_at=NOON + timedelta(seconds=1))
    assert absent(new, 0) == new


def test_what_the_live_feed_reported_later_than_the_listing_is_kept() -> None:
    later = NOON + timedelta(seconds=5)
    known = record(1, None, updated_at=later, nodes={"n": LabNode(state="BOOTED", updated_at=later)})
    contents = LabContents(nodes=(ListedNode(id="n", label="pc", state="STARTED", cpu=1, memory_gb=2),))
    seen = ListedLab(lab_id="l1", title="old", state="STOPPED", contents=contents)
    options: dict[str, Any] = {"worker_id": WorkerId("w1"), "is_full": True, "taken_at": NOON, "now": later}
    found = listed(known, seen, Standing(LabKind.FOREIGN), **options)
    assert (found.title, found.state) == ("a lab", "STARTED")
    assert found.nodes["n"] == LabNode(label="pc", state="BOOTED", cpu=1, memory_gb=2, updated_at=later)


def test_an_unchanged_lab_is_not_written_again() -> None:
    seen = ListedLab(lab_id="l1", title="t", state="STARTED", contents=LabContents(tag_ports=(2001,)))
    options: dict[str, Any] = {"worker_id": WorkerId("w1"), "is_full": True}
    first = listed(None, seen, Standing(LabKind.FOREIGN), taken_at=NOON, now=NOON, **options)
    later = NOON + timedelta(minutes=5)
    again = replace(seen, contents=None)
    assert listed(first, again, Standing(LabKind.FOREIGN), taken_at=later, now=later, **options) == first


def test_labs_without_a_claim_take_their_ports_and_the_load_of_their_running_nodes() -> None:
    nodes = {
        "a": LabNode(state="BOOTED", cpu=2, memory_gb=4, updated_at=NOON),
        "b": LabNode(state="STOPPED", cpu=8, memory_gb=8, updated_at=NOON),
    }
    others = record(1, None, nodes=nodes, tag_ports=(2001, 2002))
    own = record(2, None, kind=LabKind.SESSION, session_id="c0", nodes=nodes, tag_ports=(2003,))
    found = summarize([others, own], [claim(1)], listed_at=NOON, is_partial=False)
    assert found.foreign_ports == (2001, 2002)
    assert (found.foreign_load.cpu, found.foreign_load.memory_gb, found.foreign_load.nodes) == (2, 4, 1)
