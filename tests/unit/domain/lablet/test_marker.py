"""A lab belongs to a session by its recorded id or by both parts of its marker; every other is foreign."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.lablet.marker import (
    MAX_TITLE_LENGTH,
    LabOwner,
    Marker,
    SeenLab,
    is_ours,
    lab_title,
    mark_notes,
    marker_of,
    notes_line,
    read_notes,
    read_title,
    short_id,
)

session_ids = st.uuids(version=4).map(str)
generations = st.integers(1, 999_999_999)
texts = st.text(max_size=200)
markers = st.builds(Marker, session_ids, generations, session_ids)
SESSION = "0b81c1de-35a1-4a3c-9a10-64b1d0c3d6f2"
MINE = Marker(SESSION, 2, "fleet-1")


def imported(marker: Marker = MINE, lab_id: str = "l1", notes: str = "") -> SeenLab:
    title = lab_title(marker.session_id, marker.generation, "Branch office")
    return SeenLab(lab_id, title, mark_notes(notes, marker))


def owner(recorded_id: str | None = None, instance_id: str | None = "i-1") -> LabOwner:
    return LabOwner(MINE, recorded_id, instance_id)


@given(session_ids, generations, texts)
def test_a_title_fits_cml_and_names_its_session_and_generation(
    session_id: str, generation: int, name: str
) -> None:
    title = lab_title(session_id, generation, name)
    assert len(title) <= MAX_TITLE_LENGTH
    assert "\n" not in title
    assert read_title(title) == (uuid.UUID(session_id).hex[:12], generation)


def test_a_title_says_what_a_person_recognises() -> None:
    assert lab_title(SESSION, 2, "Branch office") == "lcm-0b81c1de35a1-g2 Branch office"
    assert notes_line(MINE) == f"lcm:session={SESSION};gen=2;fleet=fleet-1"


@given(texts, markers, markers)
def test_notes_keep_what_the_author_wrote_and_have_one_marker_however_often_they_are_marked(
    notes: str, earlier: Marker, marker: Marker
) -> None:
    marked = mark_notes(mark_notes(notes, earlier), marker)
    assert read_notes(marked) == marker
    kept = [line for line in notes.splitlines() if not line.strip().startswith("lcm:session=")]
    assert marked.splitlines()[:-1] == kept


@given(texts)
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert marker_of(SeenLab("l1", text, text)) is None
    assert short_id(text).isalnum()


def test_a_lab_with_two_different_markers_has_none() -> None:
    other = Marker("s2", 1, "fleet-1")
    assert read_notes(f"{notes_line(MINE)}\n{notes_line(other)}") is None


@given(markers)
def test_a_lab_is_ours_until_an_id_is_recorded_only_if_both_parts_are_those_of_the_session(
    marker: Marker,
) -> None:
    theirs = imported(marker)
    assert not is_ours(theirs, owner(), "i-1")
    assert is_ours(theirs, LabOwner(marker, None, "i-1"), "i-1")
    mixed_title = SeenLab("l1", theirs.title, imported().notes)
    mixed_notes = SeenLab("l1", imported().title, theirs.notes)
    assert not is_ours(mixed_title, owner(), "i-1")
    assert not is_ours(mixed_notes, owner(), "i-1")


def test_a_recorded_lab_stays_ours_whatever_a_person_writes_into_it() -> None:
    assert is_ours(SeenLab("l1", "my lab", ""), owner("l1"), "i-1")


def test_a_copy_of_our_lab_with_our_title_and_notes_is_foreign() -> None:
    assert not is_ours(imported(lab_id="l2"), owner("l1"), "i-1")


def test_a_lab_of_another_fleet_is_foreign() -> None:
    assert not is_ours(imported(Marker(SESSION, 2, "fleet-2")), owner(), "i-1")


def test_a_lab_of_another_import_of_the_session_is_foreign() -> None:
    assert not is_ours(imported(Marker(SESSION, 1, "fleet-1")), owner(), "i-1")


def test_a_lab_of_another_instance_is_foreign_even_under_the_recorded_id() -> None:
    assert not is_ours(imported(), owner("l1"), "i-2")
    assert not is_ours(imported(), owner(), "i-2")
