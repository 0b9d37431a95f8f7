"""One word for one concept: the synonyms that docs/reference/glossary.md replaces are banned."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

# Synonyms, whole words in any case, and what to write instead. Some synonyms are also ordinary English (look,
# see, say, keep, once, turn, plan, round, rest) or terms of other systems (audience of OpenID Connect, void
# of TypeScript). Only a reviewer can distinguish those.
BANNED = {
    "tell tells told telling": "publish (to processes), notify (people), report (to the control plane)",
    "wish wishes wished": "desired status, request",
    "truth": "status, observed",
    "machine machines": "instance, worker, host",
    "licence licences licenced": "license",
    "diary diaries": "CML telemetry, timeline",
    "ledger ledgers": "activity log, audit log",
    "tally tallies tallied": "stats",
    "roster rosters": "cache",
    "news gossip": "observation, event, replication feed",
    "hush hushed hushes deaf blind eyes": "name the state of the connection or observation",
    "tend tends tended tending tender care cares": "maintenance of a running worker",
    "somebody nobody everybody anybody whoever": "name the subject: an operator, the controller, a client",
    "complaint complaints": "error, problem, reason",
    "promise promises promised": "launch intent, guarantee",
    "owe owes owed owing": "license debt",
    "office offices": "leader, lease",
    "voids voided voiding": "withdraw (a launch intent)",
}
PHRASES = {
    "later fields": "forward compatibility",
    "signs of people": "activity",
    "sign of people": "activity event",
    "give back": "deregister, release",
    "gives back": "deregisters, releases",
    "given back": "deregistered, released",
    "gave back": "deregistered, released",
    "those who": "name the subject: people, operators, clients",
}
# These words before a banned one make a term of its own.
TERMS = {("state", "machine"), ("state", "machines"), ("virtual", "machine"), ("virtual", "machines")}
# Names that cannot change, or not here.
ALLOWED_NAMES = (
    "Promise",  # TypeScript's
    "ws_told_connected",  # a field of workers stored by earlier versions
    "license_given_back",  # an event of the audit log, stored and public
    "license_owed",  # the same
    "lcm_cleanup_owed",  # a metric of the contract
)
SUBSTITUTES = {word: instead for words, instead in BANNED.items() for word in words.split()} | PHRASES

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
NAMES = re.compile(r"\b(?:" + "|".join(ALLOWED_NAMES) + r")\b")
# Code in a document names what is defined elsewhere: settings, tests, modules. It is counted there.
INLINE_CODE = re.compile(r"`[^`\n]*`")

GENERATED = {
    "configuration.md",
    "openapi-internal.json",
    "openapi.json",
    "pause-states.md",
    "session-states.md",
    "worker-states.md",
}  # their texts come from src
SUFFIXES = {".py", ".ts", ".tsx", ".css", ".html"}


class Found(NamedTuple):
    line: int
    synonym: str

    def __str__(self) -> str:
        return f"line {self.line}: '{self.synonym}': write {SUBSTITUTES[self.synonym]}"


def documents() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in pages if page.name not in GENERATED)


def code() -> list[Path]:
    sources = [path for folder in ("src", "ui/src") for path in (ROOT / folder).rglob("*")]
    built = ROOT / "src" / "lcm" / "control_plane" / "static"
    texts = [path for path in sources if path.suffix in SUFFIXES and built not in path.parents]
    return sorted(texts + [ROOT / "docs" / "reference" / name for name in GENERATED])


def synonyms(text: str, suffix: str) -> Iterator[Found]:
    """Yield banned synonyms; identifiers count word by word, phrases may run over the end of a line."""
    words: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        plain = NAMES.sub(" ", INLINE_CODE.sub(" ", line) if suffix == ".md" else line)
        words += [(word.lower(), number) for word in WORD.findall(plain)]
    for at, (word, number) in enumerate(words):
        before = words[at - 1][0] if at else ""
        if word in SUBSTITUTES and (before, word) not in TERMS:
            yield Found(number, word)
        following = " ".join(each for each, _ in words[at : at + 3]) + " "
        yield from (Found(number, phrase) for phrase in PHRASES if following.startswith(phrase + " "))


def found_in(path: Path) -> list[Found]:
    return list(synonyms(path.read_text(), path.suffix))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_documents_use_the_words_of_the_glossary(path: Path) -> None:
    assert [str(each) for each in found_in(path)] == []


def test_code_uses_the_words_of_the_glossary() -> None:
    found = {name_of(path): [str(each) for each in found_in(path)] for path in code()}
    assert {name: each for name, each in found.items() if each} == {}, "see docs/reference/glossary.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def tellOthers(self): ...", ["tell"]),
        ("LAST_WISH_AT = is_machine_gone", ["wish", "machine"]),
        ("a state machine on a virtual machine", []),
        ("Promise<void> and ws_told_connected", []),
        ("the licence is given\nback", ["licence", "given back"]),
        ("stellar newsletters extend allowances", []),
    ],
)
def test_synonyms_are_recognised_in_texts_and_identifiers(text: str, expected: list[str]) -> None:
    assert [each.synonym for each in synonyms(text, ".py")] == expected


def test_inline_code_of_documents_is_not_counted() -> None:
    assert list(synonyms("the test `test_a_machine_stops`", ".md")) == []
