"""The telemetry comes in pieces of any size; what is invalid or cut off proves nothing."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.worker_controller.monitoring.telemetry_reader import InvalidTelemetry, TelemetryReader


def entry(category: str, **data: Any) -> dict[str, Any]:
    return {"category": category, "timestamp": "2026-01-01T00:00:00", "data": data}


ACTIVITY = entry("start_lab", lab_id="l1", note='a "quoted" ] } , \\ text with ünïcode 💡')
OTHER = entry("system_stats", computes={"c": {"cpu": [1, 2, {"x": "}"}]}})


def read(*pieces: bytes) -> list[tuple[Any, Any]]:
    reader = TelemetryReader()
    for piece in pieces:
        reader.feed(piece)
    return [(found.category, found.data and found.data.lab_id) for found in reader.finish().entries]


@given(cuts=st.lists(st.integers(0, 600), max_size=12), gap=st.sampled_from(["", " ", "\n\t"]))
def test_where_the_answer_is_cut_does_not_matter(cuts: list[int], gap: str) -> None:
    entries = [json.dumps(each, ensure_ascii=False) for each in (OTHER, ACTIVITY, OTHER, ACTIVITY)]
    whole = (gap + "[" + gap + f"{gap},{gap}".join(entries) + gap + "]" + gap).encode()
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == [("start_lab", "l1"), ("start_lab", "l1")]


def test_a_server_without_a_past_has_none() -> None:
    assert read(b"[]") == read(b" [", b" ] ") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[",
        b"[{}",
        b"[{},]",
        b"[,{}]",
        b"[{} {}]",
        b"[1]",
        b"[[]]",
        b"[]]",
        b"[] x",
        b"[{]",
        b"\xff\xfe",
        b'[{"a":' + b"[" * 100_000,
        b'[{"category":"start_lab","data":7}]',
    ],
)
def test_what_is_not_a_list_of_entries_proves_nothing(body: bytes) -> None:
    with pytest.raises(InvalidTelemetry):
        read(body)


def test_an_answer_without_an_end_is_given_up() -> None:
    reader = TelemetryReader(max_bytes=1024 * 1024)
    reader.feed(b"[" + b" " * (1024 * 1024 - 1))
    with pytest.raises(InvalidTelemetry, match="longer than 1 MiB"):
        reader.feed(b" ")


def test_what_is_kept_does_not_grow_with_what_is_no_activity() -> None:
    reader = TelemetryReader()
    reader.feed(b"[")
    for _ in range(5_000):
        reader.feed(json.dumps(OTHER).encode() + b",")
    assert (reader._entries, len(reader._rest)) == ([], 0)


def test_too_much_activity_is_given_up() -> None:
    reader = TelemetryReader(max_entries=10)
    with pytest.raises(InvalidTelemetry, match="more than 10 entries"):
        reader.feed(json.dumps([ACTIVITY] * 11).encode())
