"""Every row of the fault catalogue that concerns the worker controller has a test that is named after it.

A test carries a row's name in its own name (`test_a4_…`, `TestA4…`), in the id of a parameter (`E1-…`), or
at the beginning of a sentence of its docstring (`A4: …`).
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

ROWS = {
    "A1": "crash at every step of launch",
    "A2": "crash at every step of start, stop, terminate",
    "A3": "a launch took effect, its reply was lost",
    "A4": "a launch lands after its caller gave up",
    "A5": "a stop or terminate took effect, its reply was lost",
    "A6": "a write was committed, its reply was lost",
    "A7": "crash between giving a license back and terminating",
    "A8": "crash during shutdown or a rolling upgrade",
    "A9": "one record breaks every pass",
    "B1": "EC2 does not show a new instance",
    "B2": "EC2 alternates between old and new, pages disagree",
    "B3": "a stale record is read",
    "B4": "a watch event is missed, told twice, or late",
    "B5": "the wish flips inside one reconcile",
    "B7": "a late event of CML after a pause or a replacement",
    "E1": "EC2 throttles",
    "E2": "no capacity",
    "E3": "an account limit",
    "E4": "credentials lost",
    "E5": "a token with other parameters",
    "E6": "EC2 gives an instance up",
    "E7": "an instance is stuck on its way",
    "E8": "wrong instance state",
    "E9": "changed by somebody outside",
    "E10": "a known id is not found",
    "E11": "one bad id in a batch",
    "E12": "another address, or another worker at ours",
    "E13": "tags missing, edited or copied",
    "E14": "EC2 hangs",
    "E15": "CloudWatch is empty, late or throttled",
    "H1": "activity between the idle verdict and the stop",
    "H2": "the path of activity is dead",
    "H3": "a long job without a click",
    "H4": "a restart resets or inflates idle time",
    "H5": "a start while auto-pause is stopping",
    "H6": "scale-down picks the wrong worker",
    "H7": "the same instance is imported twice",
    "H8": "an orphan sweep with an empty, partial or failed list",
    "H9": "a sweep races a launch",
}

OVER_THE_WIRE = (
    *("A1", "A2", "A3", "A4", "A5", "B1", "B2", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9"),
    *("E10", "E11", "E13", "E14", "E15"),
)
"""Those that moto can be made to show."""


def names_of(row: str) -> re.Pattern[str]:
    return re.compile(rf'class Test{row}[A-Z]|def test_{row.lower()}_|id="{row}-|["\s]{row}: ')


def is_named_in(row: str, *folders: str) -> bool:
    files = (path for folder in folders for path in (TESTS / folder).rglob("test_*.py"))
    return any(names_of(row).search(path.read_text()) for path in files)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_test_on_virtual_time(row: str) -> None:
    assert is_named_in(row, "unit", "contract"), f"no test is named after {row}: {ROWS[row]}"


@pytest.mark.parametrize("row", OVER_THE_WIRE)
def test_a_row_has_a_test_over_the_wire(row: str) -> None:
    assert is_named_in(row, "integration", "contract"), f"no test is named after {row}: {ROWS[row]}"
