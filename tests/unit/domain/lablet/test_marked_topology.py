"""A topology gets the marker of its session into its notes, and nothing else of it changes."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lcm.domain.lablet import marked_yaml
from lcm.domain.lablet.marked_topology import mark_topology
from lcm.domain.lablet.marker import Marker, mark_notes, notes_line
from lcm.domain.lablet.rewrite import rewrite
from lcm.domain.lablet.topology import analyse
from unit.domain.lablet.test_topology import BRANCH_OFFICE, FIRST_FORMAT, HEAD, lab, node

MINE = Marker("s1", 1, "f1")
LINE = notes_line(MINE)


def plain(read: marked_yaml.Node | None) -> Any:
    """The values with their kind: a number must not become a text."""
    if isinstance(read, marked_yaml.Scalar):
        return read.text, read.is_plain
    if isinstance(read, marked_yaml.Sequence):
        return [plain(item) for item in read.items]
    return {name: plain(value) for name, value in read.entries.items()} if read else None


def parts(text: str) -> tuple[str, Any]:
    """The notes, and everything else."""
    read = plain(marked_yaml.compose(text))
    notes = read["lab"].pop("notes", ("", True))
    return notes[0], read


@pytest.mark.parametrize("text", [BRANCH_OFFICE, FIRST_FORMAT, lab(node())])
def test_only_the_notes_of_a_topology_change(text: str) -> None:
    notes, others = parts(mark_topology(text, MINE))
    before, expected = parts(text)
    assert (notes, others) == (mark_notes(before, MINE), expected)


@pytest.mark.parametrize("text", [BRANCH_OFFICE, FIRST_FORMAT])
def test_a_marked_topology_needs_what_it_needed_and_can_be_marked_and_rewritten_again(text: str) -> None:
    marked = mark_topology(text, MINE)
    assert analyse(marked).needs == analyse(text).needs
    assert parts(mark_topology(marked, MINE)) == parts(marked)
    ports = {spec.name: 2000 + at for at, spec in enumerate(analyse(text).ports)}
    assert parts(mark_topology(rewrite(marked, analyse(text).ports, ports), MINE))[0] == parts(marked)[0]


@pytest.mark.parametrize(
    "head",
    [
        "",
        "lab:\n",
        "lab: ~\n",
        "lab: {}\n",
        "lab: {notes: }\n",
        "lab:\n  notes: null\n",
        "lab: {notes: []}\n",
    ],
)
def test_a_topology_without_notes_gets_some(head: str) -> None:
    text = head + "nodes:\n" + node() + "links: []\n"
    assert yaml.safe_load(mark_topology(text, MINE))["lab"]["notes"] == LINE


def test_a_lab_that_was_exported_from_lcm_gets_the_marker_of_its_new_session() -> None:
    notes = mark_notes("Bring a cable", Marker("s0", 7, "f0"))
    text = f"lab: {{notes: {yaml.dump(notes, default_style=chr(34)).strip()}}}\nnodes: []\nlinks: []\n"
    assert yaml.safe_load(mark_topology(text, MINE))["lab"]["notes"] == f"Bring a cable\n{LINE}"


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=80),
    st.sampled_from(["'", '"', "|", ">", None]),
)
def test_no_text_of_a_node_changes_whatever_it_holds_and_however_it_is_written(
    text: str, style: str | None
) -> None:
    document = {"lab": {"notes": text}, "nodes": [{"configuration": text + "\n\n end \n"}], "links": []}
    marked = mark_topology(yaml.dump(document, default_style=style, allow_unicode=True), MINE)
    loaded = yaml.safe_load(marked)
    assert loaded["nodes"] == document["nodes"]
    assert loaded["lab"]["notes"] == mark_notes(text, MINE)


def test_comments_and_anchors_harm_nothing() -> None:
    text = HEAD + "nodes:\n  - &a {label: r1, ram: 010} # first\n  - *a\nlinks: []\n"
    loaded = yaml.safe_load(mark_topology(text, MINE))
    assert loaded["nodes"] == yaml.safe_load(text)["nodes"]
