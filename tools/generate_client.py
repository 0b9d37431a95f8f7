"""Writes src/lcm/client/sync from src/lcm/client/aio: `make docs`. A test fails when it is not up to date."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "lcm" / "client"
SOURCE, TARGET = CLIENT / "aio", CLIENT / "sync"

NOTE = "# Generated from `aio` by `make docs`; change that instead.\n"
WORDS = (
    (r"\baio(?=[._])", "sync"),
    (r"`sync` is generated from it", "Generated from `aio`"),
    (r"The asynchronous client", "The synchronous client"),
    (r"from collections\.abc import Awaitable, ", "from collections.abc import "),
    (r"Awaitable\[(V \| None)\]", r"\1"),
    (r"\basync (def|with) ", r"\1 "),
    (r"`async with`", "`with`"),
    (r"\bawait ", ""),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"lcm\.core\.clock\b", "lcm.core.blocking_clock"),
    (r"\bSystemClock\b", "BlockingClock"),
)


def synchronous(text: str) -> str:
    """Return the text of an asynchronous module without its asynchrony."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return NOTE + text


def modules() -> Mapping[str, str]:
    """Return every module of `sync` by its name."""
    return {path.name: _formatted(synchronous(path.read_text())) for path in sorted(SOURCE.glob("*.py"))}


def _formatted(text: str) -> str:
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in ("check", "--fix-only", "--quiet", "--select=I"), ("format",):
        call = [ruff, *command, "--stdin-filename", str(TARGET / "module.py"), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, text in modules().items():
        (TARGET / name).write_text(text)
        print(f"src/lcm/client/sync/{name}")


if __name__ == "__main__":
    main()
