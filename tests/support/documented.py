"""The command lines of `lcm` in the documentation."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PROMPT = r"^(?:\$|#) (?:[A-Z_]+=\S+ +)*(?:\S*/)?lcm "
COMMAND = re.compile(PROMPT + r"((?:\\\n|[^|>;&\n])*)", re.MULTILINE)
REDIRECTED = re.compile(r" [012]$")


def command_lines(page: Path) -> Iterator[str]:
    """Yield what follows `lcm` on each line of a page that a reader may type."""
    for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", page.read_text(), re.DOTALL):
        yield from COMMAND.findall(block)


def words_of(line: str) -> list[str]:
    """The words as a shell gives them; what stands for a value of the reader is a word like any other."""
    return shlex.split(REDIRECTED.sub("", line.replace("\\\n", " ")), comments=True)
