"""The report of a probe: what held, and the facts behind it, with nothing that names server or people.

Of what the server sent only numbers, its version and words that look like names of a protocol (`start_lab`)
are written, and of documents only their shape. Addresses, users, titles and ids are not.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from lcm.core.redaction import Redactor
from lcm.domain.diagnosis import Verdict
from lcm.worker_controller.probe import evidence as asked
from lcm.worker_controller.probe.assumptions import ASSUMPTIONS, categories
from lcm.worker_controller.probe.evidence import Answer, Evidence

WORDS: Final = {Verdict.OK: "held", Verdict.FAILED: "did not hold", Verdict.UNKNOWN: "not seen"}
WORD: Final = re.compile(r"[a-z][a-z_]{0,39}")
"""Names of a protocol have no digits, and ids and most secrets have."""
VERSION: Final = re.compile(r"\d{1,2}\.\d{1,2}\.\d{1,2}(\+build\.\d{1,6})?")
SHAPED: Final = (asked.INFORMATION, asked.HEALTH, asked.LICENSING, asked.OPT_IN)
MAX_DEPTH: Final = 6


def report(evidence: Evidence, lcm_version: str, at: datetime, secrets: Iterable[str]) -> str:
    """The report as Markdown. What is known to be secret is blanked out besides."""
    redactor = Redactor()
    for secret in secrets:
        redactor.protect(secret)
    lines = [
        "# Probe of a CML server",
        "",
        f"LCM {lcm_version}, {at:%Y-%m-%d}; CML {_version(evidence)}; feed for {evidence.minutes:g} minutes.",
        "No address, user, title, id or credential is in this report.",
        "",
        "| assumption | | found | code |",
        "|---|---|---|---|",
        *_rows(evidence),
        "",
        "## Requests",
        "",
        "| request | status | seconds | bytes |",
        "|---|---|---|---|",
        *(_request(name, answer) for name, answer in evidence.answers.items()),
        *(f"| {name} | {failure} | | |" for name, failure in evidence.failures.items()),
        "",
        *_counted("Events of the feed", evidence.feed.types if evidence.feed else Counter()),
        *_counted("Categories of the telemetry", _categories(evidence)),
        *_shapes(evidence),
    ]
    return redactor.clean("\n".join(lines))


def _rows(evidence: Evidence) -> Iterable[str]:
    for assumption in ASSUMPTIONS:
        finding = assumption.finding(evidence)
        place = assumption.place.removeprefix("lcm.")
        yield f"| {assumption.claim} | **{WORDS[finding.verdict]}** | {finding.detail} | `{place}` |"


def _request(name: str, answer: Answer) -> str:
    return f"| {name} | {answer.status} | {answer.seconds:.2f} | {len(answer.body):,} |"


def _version(evidence: Evidence) -> str:
    answer = evidence.answers.get(asked.INFORMATION)
    body = answer.json() if answer is not None else None
    version = body.get("version") if isinstance(body, Mapping) else None
    return version if isinstance(version, str) and VERSION.fullmatch(version) else "of an unreadable version"


def _categories(evidence: Evidence) -> Counter[str]:
    answer = evidence.answers.get(asked.TELEMETRY)
    try:
        return categories(answer) if answer is not None else Counter()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Counter()


def _counted(title: str, counts: Counter[str]) -> list[str]:
    shown: Counter[str] = Counter()
    for name, count in counts.items():
        shown[_name(name)] += count
    return [f"## {title}", "", *(f"- {name}: {count}" for name, count in sorted(shown.items())), ""]


def _shapes(evidence: Evidence) -> list[str]:
    lines = ["## Shapes", ""]
    for name in SHAPED:
        answer = evidence.answers.get(name)
        if answer is not None and answer.status == 200:
            shape = msgspec.json.format(msgspec.json.encode(shape_of(answer.json())), indent=2).decode()
            lines += [f"`{name}`:", "", "```json", shape, "```", ""]
    return lines


def shape_of(value: Any, depth: int = 0) -> Any:
    """The keys and kinds of a document, without a value."""
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {_name(key): shape_of(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list):
        return [shape_of(value[0], depth + 1)] if value else []
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    return "text" if isinstance(value, str) else "number"


def _name(text: str) -> str:
    return text if WORD.fullmatch(text) else "(not shown)"
