"""What LCM assumes of CML, each with the place in the code that relies on it, and whether it held.

An assumption that failed is no fault of the server: LCM was written from documents and captures
(docs/adr/0010), and this is how it learns.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from lcm.cml.connection import CmlLimits
from lcm.cml.session import TOKEN_SECONDS
from lcm.domain.diagnosis import Finding, Verdict
from lcm.domain.telemetry import ACTIVITY_CATEGORIES
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.monitor import UNAUTHORIZED
from lcm.worker_controller.monitoring.protocol import EVENT_TYPES, GARBAGE, UNKNOWN, read_system_stats
from lcm.worker_controller.monitoring.telemetry_log import activity_in_telemetry
from lcm.worker_controller.monitoring.telemetry_reader import InvalidTelemetry, parse_telemetry
from lcm.worker_controller.monitoring.version import LiveFeed, live_feed_of
from lcm.worker_controller.ports import MAX_MESSAGE_BYTES
from lcm.worker_controller.probe import evidence as asked
from lcm.worker_controller.probe.evidence import Answer, Evidence, Feed

OTHER_CATEGORIES: Final = frozenset(
    {
        "aaa_info",
        "blkinfo",
        "cpuinfo",
        "dmiinfo",
        "hypervisor",
        "license_info",
        "maintenance_state_change",
        "meminfo",
        "notice_state_change",
        "resource_pool",
        "running_nodes",
        "system_stats",
        "user_group",
        "vmware",
    }
)
"""Known from CML 2.9, and not counted as activity."""
REGISTRATIONS: Final = ("NOT_REGISTERED", "IN_PROGRESS", "COMPLETED", "FAILED", "RETRY_IN_PROGRESS")
AUTHORIZATIONS: Final = ("INIT", "EVAL", "IN_COMPLIANCE", "OUT_OF_COMPLIANCE", "NOT_AUTHORIZED")
LICENSING_KEYS: Final = (
    "registration",
    "authorization",
    "features",
    "reservation_mode",
    "transport",
    "udi",
    "product_license",
)
HEALTH_KEYS: Final = ("valid", "computes", "is_licensed", "is_enterprise", "controller")
LIFETIME_TOLERANCE: Final = 0.01
SAME_MINUTE: Final = timedelta(seconds=60)

_LIMITS: Final = MonitoringConfig()
_CALLS: Final = CmlLimits()
_OWN_EVENTS: Final = frozenset(EVENT_TYPES) - {UNKNOWN, GARBAGE}


Judgment = tuple[Verdict, str]
"""Whether it held, and what was found, without a value that could be secret."""


def held(found: str) -> Judgment:
    return Verdict.OK, found


def broken(found: str) -> Judgment:
    return Verdict.FAILED, found


def not_seen(why: str) -> Judgment:
    return Verdict.UNKNOWN, why


@dataclass(frozen=True)
class Assumption:
    """One sentence about CML, and the code that would be wrong without it."""

    name: str
    claim: str
    place: str
    """Module and name in it."""
    judge: Callable[[Evidence], Judgment]

    def finding(self, evidence: Evidence) -> Finding:
        verdict, detail = self.judge(evidence)
        return Finding(check=self.name, verdict=verdict, detail=detail)


def _of_answer(name: str, judge: Callable[[Answer], Judgment]) -> Callable[[Evidence], Judgment]:
    """A judge of one answer; what was not answered was not seen."""

    def judged(evidence: Evidence) -> Judgment:
        answer = evidence.answers.get(name)
        if answer is None:
            return not_seen(f"no answer: {evidence.failures.get(name, 'not asked')}")
        return judge(answer)

    return judged


def _of_feed(judge: Callable[[Feed], Judgment]) -> Callable[[Evidence], Judgment]:
    """A judge of the feed; without a single event nothing about it was seen."""

    def judged(evidence: Evidence) -> Judgment:
        feed = evidence.feed
        if feed is None or feed.first_event_after is None:
            return not_seen(f"no event came: {evidence.failures.get('feed', 'not opened or silent')}")
        return judge(feed)

    return judged


# Requests.


def _information(answer: Answer) -> Judgment:
    body = answer.json()
    if answer.status != 200 or not isinstance(body, Mapping):
        return broken(f"status {answer.status}")
    fits = isinstance(body.get("version"), str) and isinstance(body.get("ready"), bool)
    return held("version and ready are there") if fits else broken("version or ready is missing")


def _has_feed(answer: Answer) -> Judgment:
    body = answer.json()
    version = body.get("version") if isinstance(body, Mapping) else None
    feed = live_feed_of(version if isinstance(version, str) else None)
    return held("this release has one") if feed is LiveFeed.YES else broken(f"this release: {feed.value}")


def _has_date(answer: Answer) -> Judgment:
    if answer.server_time is None:
        return broken("no Date in the answer")
    skew = answer.server_time - answer.answered_at
    far = "within a minute of this host's" if abs(skew) < SAME_MINUTE else f"off by {_seconds(skew)} s"
    return held(f"its clock is {far}")


def _status(expected: int) -> Callable[[Answer], Judgment]:
    def judge(answer: Answer) -> Judgment:
        return held(f"status {expected}") if answer.status == expected else broken(f"status {answer.status}")

    return judge


def _describes_error(answer: Answer) -> Judgment:
    body = answer.json()
    if isinstance(body, Mapping) and isinstance(body.get("description"), str):
        return held("there is a description") if body.get("code") == answer.status else broken("no code")
    return broken("no description")


def _logs_in(evidence: Evidence) -> Judgment:
    if evidence.has_logged_in:
        return held("a token came")
    failure = evidence.failures.get("login", "not tried")
    return broken("the login was refused") if failure == "CredentialsRefused" else not_seen(failure)


def _names_user(evidence: Evidence) -> Judgment:
    if evidence.claims is None:
        return not_seen("no token")
    return held("it has `sub`") if evidence.claims.sub else broken("it has no `sub`")


def _lives_a_day(evidence: Evidence) -> Judgment:
    claims, issued_at = evidence.claims, evidence.token_issued_at
    if claims is None or issued_at is None:
        return not_seen("no token")
    if claims.exp is None:
        return broken("it has no `exp`")
    life = claims.exp - issued_at.timestamp()
    is_a_day = abs(life - TOKEN_SECONDS) <= LIFETIME_TOLERANCE * TOKEN_SECONDS
    return (held if is_a_day else broken)(f"{life / 3600:.2f} h")


def _is_within(seconds: float) -> Callable[[Answer], Judgment]:
    def judge(answer: Answer) -> Judgment:
        found = f"{answer.seconds:.1f} s, {len(answer.body):,} bytes"
        return held(found) if answer.seconds <= seconds else broken(found)

    return judge


def _load(answer: Answer) -> Judgment:
    stats = read_system_stats(answer.body) if answer.status == 200 else None
    if stats is None:
        return broken(f"status {answer.status}, or it cannot be read")
    whole = stats.all
    missing = [
        name
        for name, value in (
            ("cpu", whole.cpu.percent if whole.cpu else None),
            ("memory", whole.memory.percent if whole.memory else None),
            ("disk", whole.disk.percent if whole.disk else None),
            ("running nodes", stats.nodes_count),
        )
        if value is None
    ]
    return broken(f"missing: {', '.join(missing)}") if missing else held("cpu, memory, disk, running nodes")


def _keys(expected: Iterable[str]) -> Callable[[Answer], Judgment]:
    def judge(answer: Answer) -> Judgment:
        body = answer.json()
        if answer.status != 200 or not isinstance(body, Mapping):
            return broken(f"status {answer.status}, or no object")
        missing = [key for key in expected if key not in body]
        return broken(f"missing: {', '.join(missing)}") if missing else held("all keys are there")

    return judge


def _knows_kvm(answer: Answer) -> Judgment:
    body = answer.json()
    computes = body.get("computes") if isinstance(body, Mapping) else None
    if not isinstance(computes, Mapping) or not computes:
        return broken("no computes")
    values = [host.get("kvm_vmx_enabled") for host in computes.values() if isinstance(host, Mapping)]
    if not all(isinstance(value, bool) for value in values):
        return broken("a compute does not say it")
    return held(f"{sum(map(bool, values))} of {len(values)} computes have KVM")


def _licensing_words(answer: Answer) -> Judgment:
    body = answer.json()
    if answer.status != 200 or not isinstance(body, Mapping):
        return broken(f"status {answer.status}, or no object")
    wrong = [
        part
        for part, known in (("registration", REGISTRATIONS), ("authorization", AUTHORIZATIONS))
        if _status_of(body.get(part)) not in known
    ]
    if wrong:
        return broken(f"another word for the status of {' and '.join(wrong)}")
    return held(f"{_status_of(body['registration'])}, {_status_of(body['authorization'])}")


def _status_of(part: Any) -> Any:
    return part.get("status") if isinstance(part, Mapping) else None


# Telemetry.


def categories(answer: Answer) -> Counter[str]:
    """How many entries each category has; raises MsgspecError if they cannot be read."""
    entries = msgspec.json.decode(answer.body, type=list[_Entry])
    return Counter(entry.category for entry in entries)


class _Entry(msgspec.Struct, frozen=True):
    category: str
    timestamp: str


def _telemetry_can_be_read(answer: Answer) -> Judgment:
    if answer.status != 200:
        return broken(f"status {answer.status}")
    try:
        count = categories(answer).total()
        activity = activity_in_telemetry(
            parse_telemetry(answer.body).entries,
            own_user_id="probe",
            now=answer.answered_at,
            server_now=answer.server_time,
        )
        times = [entry.timestamp for entry in msgspec.json.decode(answer.body, type=list[_Entry])]
    except (InvalidTelemetry, msgspec.MsgspecError, ValueError, RecursionError):
        return broken("it is no list of entries with category and timestamp")
    if not all(map(_is_time, times)):
        return broken("some times cannot be read")
    return held(f"{count} entries, {len(activity)} of them activity") if count else not_seen("it is empty")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _categories_are_known(answer: Answer) -> Judgment:
    try:
        found = set(categories(answer))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return not_seen("the telemetry cannot be read")
    new = len(found - ACTIVITY_CATEGORIES - OTHER_CATEGORIES)
    if new:
        return broken(f"{new} categories that LCM does not know; they are below")
    return held(f"{len(found)} categories") if found else not_seen("it is empty")


def _telemetry_is_on(answer: Answer) -> Judgment:
    body = answer.json()
    if not isinstance(body, Mapping) or "opt_in" not in body:
        return broken(f"status {answer.status}, or no opt_in")
    is_off = body["opt_in"] in (False, "declined")
    return broken("it is declined: whether events are still kept shows below") if is_off else held("not off")


# The live feed.


def _first_event(feed: Feed) -> Judgment:
    seconds = feed.first_event_after or 0.0
    judge = held if seconds <= _LIMITS.first_event_within else broken
    return judge(f"{seconds:.1f} s after the token")


def _load_is_frequent(feed: Feed) -> Judgment:
    if not feed.stats_gaps:
        return not_seen("fewer than two frames of the load")
    longest = max(feed.stats_gaps)
    usual = sorted(feed.stats_gaps)[len(feed.stats_gaps) // 2]
    judge = held if longest < _LIMITS.ping_after else broken
    return judge(f"usually every {usual:.1f} s, at most {longest:.1f} s")


def _never_silent(feed: Feed) -> Judgment:
    judge = held if feed.longest_gap < _LIMITS.health_timeout else broken
    return judge(f"longest silence {feed.longest_gap:.1f} s")


def _is_fast(feed: Feed) -> Judgment:
    stats = feed.types["system_stats"]
    if not stats:
        return not_seen("no frame of the load")
    return (held if feed.fast_frames == stats else broken)(f"{feed.fast_frames} of {stats}")


def _types_are_known(feed: Feed) -> Judgment:
    new = len(set(feed.types) - _OWN_EVENTS - {""})
    if new:
        return broken(f"{new} types that LCM does not know; they are below")
    return held(f"{len(feed.types)} types")


def _no_garbage(feed: Feed) -> Judgment:
    count = feed.counts.garbage
    return broken(f"{count} frames cannot be read") if count else held(f"{feed.counts.total} frames")


def _frames_are_small(feed: Feed) -> Judgment:
    judge = held if feed.largest_frame <= MAX_MESSAGE_BYTES else broken
    return judge(f"at most {feed.largest_frame:,} bytes")


def _pongs_come(feed: Feed) -> Judgment:
    if feed.unanswered_pings:
        return broken(f"{feed.unanswered_pings} of {feed.pings} pings had no answer")
    return held(f"within {feed.slowest_pong:.1f} s")


def _lasts(evidence: Evidence) -> Judgment:
    feed = evidence.feed
    if feed is not None and feed.closed is not None:
        return broken(f"closed with {feed.closed.code} after {feed.closed.after_seconds:.0f} s")
    if feed is None or feed.first_event_after is None:
        return not_seen("no event came")
    return held(f"held for {feed.held_seconds / 60:.1f} minutes")


def _closed_as_unauthorized(which: str) -> Callable[[Evidence], Judgment]:
    def judge(evidence: Evidence) -> Judgment:
        name, after = {
            "forged": ("forged token", evidence.after_forged_token),
            "silent": ("silence", evidence.after_silence),
        }[which]
        if name in evidence.failures or not evidence.has_logged_in:
            return not_seen(f"not connected: {evidence.failures.get(name, 'no login')}")
        if after is None:
            return broken("it stayed open")
        judged = held if after.code == UNAUTHORIZED else broken
        return judged(f"closed with {after.code} after {after.after_seconds:.0f} s")

    return judge


def _seconds(skew: timedelta) -> str:
    return f"{skew.total_seconds():+.0f}"


_CLIENT = "lcm.worker_controller.adapters"
_MONITORING = "lcm.worker_controller.monitoring"
_CML = "lcm.cml"

ASSUMPTIONS: Final = (
    Assumption(
        "information",
        "`system_information` needs no login and has `version` and `ready`",
        f"{_CLIENT}.cml_system.CmlSystemSpiClient",
        _of_answer(asked.INFORMATION, _information),
    ),
    Assumption(
        "feed-by-version",
        "Releases from 2.9 have a live feed",
        f"{_MONITORING}.version.live_feed_of",
        _of_answer(asked.INFORMATION, _has_feed),
    ),
    Assumption(
        "date",
        "Answers carry the server's time",
        f"{_CML}.connection.CmlAnswer",
        _of_answer(asked.INFORMATION, _has_date),
    ),
    Assumption(
        "wrong-login",
        "A wrong login is 403",
        f"{_CML}.session.CmlSession",
        _of_answer(asked.STRANGER, _status(403)),
    ),
    Assumption(
        "wrong-token",
        "A wrong token is 401",
        f"{_CML}.session.CmlSession",
        _of_answer(asked.FORGED, _status(401)),
    ),
    Assumption(
        "error-text",
        "An error has its status as `code`, and a `description`",
        f"{_CLIENT}.cml_licensing.CmlLicensingClient",
        _of_answer(asked.FORGED, _describes_error),
    ),
    Assumption("login", "A login is answered by a bare token", f"{_CML}.session.CmlSession", _logs_in),
    Assumption("token-user", "A token names its user", f"{_CML}.session.claims_of", _names_user),
    Assumption("token-life", "A token lives for 24 hours", f"{_CML}.session.TOKEN_SECONDS", _lives_a_day),
    Assumption(
        "token-accepted",
        "The token is accepted",
        f"{_CML}.session.CmlSession",
        _of_answer(asked.OWN, _status(200)),
    ),
    Assumption(
        "token-lasts",
        "The token is accepted after the hold too",
        f"{_CML}.session.USED_LIFE",
        _of_answer(asked.OWN_AFTERWARDS, _status(200)),
    ),
    Assumption(
        "load",
        "`system_stats` has CPU, memory, disk and running nodes",
        f"{_MONITORING}.protocol.SystemStats",
        _of_answer(asked.STATS, _load),
    ),
    Assumption(
        "load-time",
        f"`system_stats` is answered within {_CALLS.request:g} s",
        f"{_CML}.connection.CmlLimits",
        _of_answer(asked.STATS, _is_within(_CALLS.request)),
    ),
    Assumption(
        "health",
        "`system_health` has its keys",
        f"{_MONITORING}.metrics.HEALTH_PATH",
        _of_answer(asked.HEALTH, _keys(HEALTH_KEYS)),
    ),
    Assumption(
        "kvm",
        "`system_health` says of every compute whether it has KVM",
        f"{_MONITORING}.metrics.HEALTH_PATH",
        _of_answer(asked.HEALTH, _knows_kvm),
    ),
    Assumption(
        "licensing",
        "`licensing` has its keys, registered or not",
        f"{_CLIENT}.cml_licensing.license_state",
        _of_answer(asked.LICENSING, _keys(LICENSING_KEYS)),
    ),
    Assumption(
        "licensing-words",
        "The states of registration and authorization are the known words",
        f"{_CLIENT}.cml_licensing.license_state",
        _of_answer(asked.LICENSING, _licensing_words),
    ),
    Assumption(
        "telemetry",
        "Telemetry is a list of entries with `category` and an ISO time",
        f"{_MONITORING}.telemetry_log.activity_in_telemetry",
        _of_answer(asked.TELEMETRY, _telemetry_can_be_read),
    ),
    Assumption(
        "telemetry-categories",
        "Every category is known as activity or as none",
        "lcm.domain.telemetry.ACTIVITY_CATEGORIES",
        _of_answer(asked.TELEMETRY, _categories_are_known),
    ),
    Assumption(
        "telemetry-time",
        f"All of the telemetry is answered within {_CALLS.telemetry:g} s",
        f"{_CML}.connection.CmlLimits",
        _of_answer(asked.TELEMETRY, _is_within(_CALLS.telemetry)),
    ),
    Assumption(
        "telemetry-on",
        "Telemetry is not declined",
        f"{_MONITORING}.polling.RestFallback",
        _of_answer(asked.OPT_IN, _telemetry_is_on),
    ),
    Assumption(
        "feed-first",
        f"The first event comes within {_LIMITS.first_event_within:g} s of the token",
        f"{_MONITORING}.config.MonitoringConfig",
        _of_feed(_first_event),
    ),
    Assumption(
        "feed-load",
        f"The load comes more often than every {_LIMITS.ping_after:g} s",
        f"{_MONITORING}.config.MonitoringConfig",
        _of_feed(_load_is_frequent),
    ),
    Assumption(
        "feed-silence",
        f"The feed is never silent for {_LIMITS.health_timeout:g} s",
        f"{_MONITORING}.config.MonitoringConfig",
        _of_feed(_never_silent),
    ),
    Assumption(
        "feed-head",
        "Frames of the load begin with their type",
        f"{_MONITORING}.protocol.SYSTEM_STATS_HEAD",
        _of_feed(_is_fast),
    ),
    Assumption(
        "feed-types",
        "Every event type is known",
        f"{_MONITORING}.protocol.EVENT_TYPES",
        _of_feed(_types_are_known),
    ),
    Assumption(
        "feed-valid", "Every frame can be read", f"{_MONITORING}.protocol.LiveProtocol", _of_feed(_no_garbage)
    ),
    Assumption(
        "feed-size",
        f"A frame has at most {MAX_MESSAGE_BYTES:,} bytes",
        "lcm.worker_controller.ports.MAX_MESSAGE_BYTES",
        _of_feed(_frames_are_small),
    ),
    Assumption(
        "feed-pong", "Pings are answered", f"{_MONITORING}.config.MonitoringConfig", _of_feed(_pongs_come)
    ),
    Assumption(
        "feed-lasts",
        "The feed stays open as long as it is wanted",
        f"{_MONITORING}.monitor.CmlWebSocketMonitor",
        _lasts,
    ),
    Assumption(
        "feed-wrong-token",
        f"A wrong token is answered by a close with {UNAUTHORIZED}",
        f"{_MONITORING}.monitor.UNAUTHORIZED",
        _closed_as_unauthorized("forged"),
    ),
    Assumption(
        "feed-no-token",
        f"A connection without a token is closed with {UNAUTHORIZED}",
        f"{_MONITORING}.monitor.UNAUTHORIZED",
        _closed_as_unauthorized("silent"),
    ),
)


def judge(evidence: Evidence) -> list[Finding]:
    """A finding for each assumption, in order."""
    return [assumption.finding(evidence) for assumption in ASSUMPTIONS]
