"""What is printed: tables, documents, and parts of them."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from lcm.cli.output import Column, find, format_of, print_facts, print_items, span

FLEET = {"items": [{"name": "a", "tags": {"team": "x"}}, {"name": "b", "tags": {}}]}


@dataclass(frozen=True)
class Thing:
    name: str
    why: str = ""


COLUMNS = (
    Column("NAME", lambda t: t.name),
    Column("ID", lambda t: "1", is_wide=True),
    Column("WHY", lambda t: t.why),
)
THINGS = [Thing("a", "because"), Thing("longer")]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{.items[*].name}", ["a", "b"]),
        ("items[0].tags.team", ["x"]),
        ("$.items[-1].name", ["b"]),
        (".items[*].tags.team", ["x"]),
        (".items[7].name", []),
        (".nothing.there", []),
        (".items[0].tags", [{"team": "x"}]),
    ],
)
def test_a_path_finds_what_is_there_and_nothing_else(path: str, found: list[Any]) -> None:
    assert list(find(FLEET, path)) == found


def printed(form: str, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    print_items(THINGS, format_of(form), COLUMNS, lambda t: f"thing/{t.name}", **options)
    return capsys.readouterr().out


def test_a_table_is_aligned_and_shows_more_when_wide(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("table", capsys) == "NAME     WHY\na        because\nlonger\n"
    assert printed("wide", capsys).splitlines()[0] == "NAME     ID   WHY"


def test_programs_get_documents_or_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed("json", capsys))["items"][0] == {"name": "a", "why": "because"}
    assert printed("yaml", capsys).startswith("items:\n- name: a\n")
    assert printed("name", capsys) == "thing/a\nthing/longer\n"
    assert printed("jsonpath={.items[*].name}", capsys) == "a\nlonger\n"


def test_nothing_is_an_empty_list_for_programs_and_no_text_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for form, expected in (("json", {"items": []}), ("table", None)):
        print_items([], format_of(form), COLUMNS, str)
        shown = capsys.readouterr()
        assert (json.loads(shown.out) if shown.out else None, shown.err) == (expected, "")


def test_no_text_of_a_record_writes_elsewhere_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_items([Thing("a\n\x1b[2Jb")], format_of("table"), COLUMNS, str)
    assert capsys.readouterr().out.splitlines()[1] == "a  [2Jb"
    print_facts([("Title", "a\x1b[2Jb")])
    assert capsys.readouterr().out == "Title  a [2Jb\n"


@pytest.mark.parametrize(("seconds", "text"), [(45, "45s"), (130, "2m"), (7200, "2h"), (200_000, "2d")])
def test_a_duration_is_said_in_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_format_that_does_not_exist_is_a_mistake_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        format_of("xml")
    assert ended.value.code == 2
    assert "choose one of table, wide" in capsys.readouterr().err
