"""Events are read from any pieces of the stream."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lcm.client.events import EventParser

STREAM = (
    b': a comment\n\nid: b-1\nevent: connected\ndata: {"boot":"b"}\n\n'
    b'event: heartbeat\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
    b"id: b-2\nevent: worker.paused\ndata: {}\n\n"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_piece_may_end_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    parser = EventParser()
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    events = [event for piece in pieces for event in parser.feed(piece)]
    assert [(event.type, event.id, event.data) for event in events] == [
        ("connected", "b-1", {"boot": "b"}),
        ("heartbeat", None, {"a": 1}),
        ("worker.paused", "b-2", {}),
    ]
    assert [event.worker for event in events] == [None, None, None]
