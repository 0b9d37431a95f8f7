"""What is done is said on every line, and a trace is made up only when somebody needs its name."""

import random

import pytest

from lcm.core import tracing
from lcm.core.ids import RandomIds
from lcm.core.tracing import TraceContext, add_what_is_done, begin, doing, span, trace_id_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class CountedIds(RandomIds):
    """Says how many were made."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.made = 0

    def new_id(self) -> str:
        self.made += 1
        return super().new_id()


def line(**said: object) -> dict[str, object]:
    return dict(add_what_is_done(None, "info", {"event": "something", **said}))


async def test_a_line_says_what_is_done_and_in_which_trace() -> None:
    with doing(TraceContext(CountedIds(), {"worker_id": "w", "epoch": 3}, TRACE)):
        assert line() == {"event": "something", "worker_id": "w", "epoch": 3, "trace_id": TRACE}
    assert line() == {"event": "something"}


async def test_what_a_line_says_itself_wins() -> None:
    with doing(TraceContext(CountedIds(), {"worker_id": "w"}, TRACE)):
        assert line(worker_id="other")["worker_id"] == "other"


async def test_work_inside_work_keeps_what_is_known_and_has_a_trace_of_its_own() -> None:
    ids = CountedIds()
    begin(ids, {"epoch": 3})
    around = line()["trace_id"]
    with span(worker_id="w"):
        inside = line()
    assert (inside["epoch"], inside["worker_id"]) == (3, "w")
    assert inside["trace_id"] != around
    assert line()["trace_id"] == around


async def test_a_trace_keeps_its_name_and_nobody_pays_for_one_that_is_not_asked_for() -> None:
    ids = CountedIds()
    begin(ids, {"worker_id": "w"})
    assert ids.made == 0
    assert line()["trace_id"] == line()["trace_id"]
    assert ids.made == 1


async def test_whoever_is_called_learns_the_trace_in_the_form_of_w3c() -> None:
    begin(CountedIds(), {})
    work = tracing.current()
    assert work is not None
    assert trace_id_of(work.traceparent) == work.trace_id
    assert work.traceparent == work.traceparent


@pytest.mark.parametrize(
    ("header", "trace_id"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-00f067aa0ba902b7-01\n forged=line", None),
        (f"00-{TRACE}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_header_that_makes_no_sense_names_no_trace(header: str | None, trace_id: str | None) -> None:
    assert trace_id_of(header) == trace_id
