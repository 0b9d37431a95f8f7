"""The assumptions of `lcm probe cml`: each names code that exists, and nothing is concluded from nothing."""

import importlib
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from lcm.cml.connection import CmlLimits
from lcm.cml.session import TokenClaims
from lcm.domain.diagnosis import Verdict
from lcm.worker_controller.probe import evidence as asked
from lcm.worker_controller.probe.assumptions import ASSUMPTIONS, Assumption, judge
from lcm.worker_controller.probe.evidence import Answer, Closed, Evidence, Feed
from lcm.worker_controller.probe.report import report, shape_of

AT = datetime(2026, 11, 19, 12, tzinfo=UTC)


def verdict_of(name: str, evidence: Evidence) -> Verdict:
    [finding] = [finding for finding in judge(evidence) if finding.check == name]
    return finding.verdict


@pytest.mark.parametrize("assumption", ASSUMPTIONS, ids=lambda assumption: assumption.name)
def test_every_assumption_names_the_code_that_relies_on_it(assumption: Assumption) -> None:
    module, _, name = assumption.place.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_no_two_assumptions_have_one_name() -> None:
    assert len({assumption.name for assumption in ASSUMPTIONS}) == len(ASSUMPTIONS)


def test_of_a_server_that_never_answered_nothing_is_known() -> None:
    assert {finding.verdict for finding in judge(Evidence())} == {Verdict.UNKNOWN}


def test_of_a_feed_without_an_event_nothing_is_known() -> None:
    evidence = Evidence(has_logged_in=True, feed=Feed(held_seconds=30))
    findings = [
        each for each in judge(evidence) if each.check.startswith("feed-") and "token" not in each.check
    ]
    assert {finding.verdict for finding in findings} == {Verdict.UNKNOWN}


def test_every_category_of_cml_2_9_is_known() -> None:
    """Those of its own description of the API; a server sends most of them only now and then."""
    of_api = (
        "start_lab stop_lab queue_node start_node boot_node stop_node wipe_node packet_capture license_info"
        " maintenance_state_change notice_state_change running_nodes resource_pool user_activity user_group"
        " system_stats blkinfo vmware dmiinfo cpuinfo meminfo hypervisor import_lab export_lab aaa_info"
    )
    entries = [{"category": each, "timestamp": "2026-11-19T12:00:00", "data": {}} for each in of_api.split()]
    telemetry = Answer(200, msgspec.json.encode(entries), AT, AT, AT)
    assert verdict_of("telemetry-categories", Evidence(answers={asked.TELEMETRY: telemetry})) is Verdict.OK


@pytest.mark.parametrize(
    ("name", "answer", "limit"),
    [
        ("load-time", asked.STATS, CmlLimits.request),
        ("telemetry-time", asked.TELEMETRY, CmlLimits.telemetry),
    ],
)
def test_an_answer_is_measured_by_how_long_lcm_waits_for_it(name: str, answer: str, limit: float) -> None:
    for late, verdict in ((0.0, Verdict.OK), (0.1, Verdict.FAILED)):
        answered_at = AT + timedelta(seconds=limit + late)
        evidence = Evidence(answers={answer: Answer(200, b"[]", AT, answered_at, AT)})
        assert verdict_of(name, evidence) is verdict


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"first_event_after": 25.0}, {"feed-first"}),
        ({"stats_gaps": [3.3, 21.0]}, {"feed-load"}),
        ({"longest_gap": 61.0}, {"feed-silence"}),
        ({"fast_frames": 1}, {"feed-head"}),
        ({"largest_frame": 2 * 1024 * 1024}, {"feed-size"}),
        ({"unanswered_pings": 1}, {"feed-pong"}),
        ({"closed": Closed(1001, 12.0)}, {"feed-lasts"}),
        ({}, set()),
    ],
)
def test_a_limit_of_monitoring_is_what_a_feed_is_measured_by(
    changes: dict[str, object], broken: set[str]
) -> None:
    feed = Feed(first_event_after=3.0, stats_gaps=[3.3], longest_gap=3.3, fast_frames=2, pings=1)
    feed.types.update(system_stats=2)
    for name, value in changes.items():
        setattr(feed, name, value)
    findings = judge(Evidence(has_logged_in=True, feed=feed))
    assert {each.check for each in findings if each.verdict is Verdict.FAILED} - {
        "feed-wrong-token",
        "feed-no-token",
    } == broken


@pytest.mark.parametrize(
    ("hours", "verdict"),
    [(24.0, Verdict.OK), (24.2, Verdict.OK), (8.0, Verdict.FAILED), (None, Verdict.FAILED)],
)
def test_a_token_is_expected_to_live_a_day_by_the_clock_of_its_server(
    hours: float | None, verdict: Verdict
) -> None:
    exp = None if hours is None else (AT + timedelta(hours=hours)).timestamp()
    evidence = Evidence(claims=TokenClaims(exp=exp, sub="u"), token_issued_at=AT)
    assert verdict_of("token-life", evidence) is verdict


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b'{"a":1}', b'[{"category":1,"timestamp":""}]', b"\xff"])
def test_telemetry_that_cannot_be_read_fails_and_never_raises(body: bytes) -> None:
    answer = Answer(200, body, AT, AT, AT)
    assert verdict_of("telemetry", Evidence(answers={asked.TELEMETRY: answer})) is Verdict.FAILED


def test_an_empty_telemetry_proves_nothing() -> None:
    answer = Answer(200, b"[]", AT, AT, AT)
    assert verdict_of("telemetry", Evidence(answers={asked.TELEMETRY: answer})) is Verdict.UNKNOWN


def test_a_shape_has_kinds_and_no_values() -> None:
    document = {
        "status": "COMPLETED",
        "count": 3,
        "is_on": True,
        "nothing": None,
        "list": [{"name": "Ada"}],
        "4f2c-11": {"hostname": "cml-7"},
    }
    assert shape_of(document) == {
        "status": "text",
        "count": "number",
        "is_on": "boolean",
        "nothing": "null",
        "list": [{"name": "text"}],
        "(not shown)": {"hostname": "text"},
    }


def test_the_report_has_a_row_for_every_assumption_and_no_secret() -> None:
    body = b'{"version":"2.9.1+build.7","ready":true,"hostname":"cml-of-zoe"}'
    telemetry = (
        b'[{"category":"start_lab","timestamp":"2026-11-19T10:00:00"},{"category":"Zoe 1","timestamp":"x"}]'
    )
    evidence = Evidence(
        answers={
            asked.INFORMATION: Answer(200, body, AT, AT, AT),
            asked.TELEMETRY: Answer(200, telemetry, AT, AT, AT),
        },
        failures={"feed": "Unreachable"},
        minutes=30,
    )
    text = report(evidence, "0.1.0", AT, secrets=["start_lab"])
    assert text.count("| **") == len(ASSUMPTIONS)
    assert "CML 2.9.1+build.7; feed for 30 minutes" in text
    assert "- [secret]: 1" in text  # what is known to be secret is blanked out even where words are shown
    assert "- (not shown): 1" in text
    assert "zoe" not in text.lower()
    assert "| feed | Unreachable | | |" in text
    assert '"hostname": "text"' in text


def test_a_version_that_is_none_is_not_repeated() -> None:
    body = b'{"version":"2.9.1-of-zoe","ready":true}'
    evidence = Evidence(answers={asked.INFORMATION: Answer(200, body, AT, AT, AT)})
    assert "of an unreadable version" in report(evidence, "0.1.0", AT, ())
