"""Findings on a terminal: a line each, and the exit code that they add up to."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from lcm.cli.terminal import Exit
from lcm.domain.diagnosis import Finding, Verdict

STYLES: Final = {Verdict.OK: "green", Verdict.FAILED: "bold red", Verdict.UNKNOWN: "yellow"}
EXIT_CODES: Final = {Verdict.OK: Exit.OK, Verdict.FAILED: Exit.FAILED, Verdict.UNKNOWN: Exit.UNCHECKED}
"""By the worst finding."""


def show(findings: Sequence[Finding], console: Console) -> None:
    """One line for each finding, and how many there are of each kind."""
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        verdict = finding.verdict.upper() if finding.verdict is Verdict.FAILED else finding.verdict
        line = Text(f"{verdict:<8}", STYLES[finding.verdict]) + Text(f"{finding.check:<{width}}  ", "default")
        console.print(line + Text(finding.detail, "default"), soft_wrap=True)
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), style="dim")


def exit_code(findings: Sequence[Finding]) -> Exit:
    """That of the worst finding."""
    verdicts = {finding.verdict for finding in findings}
    worst = next((each for each in (Verdict.FAILED, Verdict.UNKNOWN) if each in verdicts), Verdict.OK)
    return EXIT_CODES[worst]
