"""Which LCM this is: its version, and the commit it was built from."""

import subprocess
from pathlib import Path

from lcm import VERSION

_PACKAGE = Path(__file__).parents[1]


def version_line() -> str:
    commit = commit_of(_PACKAGE)
    return f"lcm {VERSION} (commit {commit})" if commit else f"lcm {VERSION}"


def commit_of(package: Path) -> str:
    """Return the commit: that of the build, or of the clone that it runs from; empty if neither is known."""
    built = package / "commit.txt"
    if built.is_file():
        return built.read_text().strip()
    if not (package.parents[1] / ".git").exists():
        return ""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=package, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
