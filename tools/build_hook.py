"""What hatchling does besides copying: it refuses a package without dashboard, and adds the commit."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DASHBOARD = "src/lcm/control_plane/static/index.html"
COMMIT = "lcm/commit.txt"


class Package(BuildHookInterface[Any]):
    """Named in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        if not (root / DASHBOARD).is_file():
            raise SystemExit("the dashboard is not built; 'make dist' builds it first")
        place = COMMIT if self.target_name == "wheel" else f"src/{COMMIT}"
        if not (root / "src" / COMMIT).is_file():  # an sdist brings its own
            build_data["force_include"][self._commit_file(root)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        for path, place in build_data["force_include"].items():
            if str(place).endswith(COMMIT):
                Path(path).unlink()

    def _commit_file(self, root: Path) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write(os.environ.get("LCM_COMMIT") or _described(root))
        return file.name


def _described(root: Path) -> str:
    """Return the commit of the clone; empty where there is none, or no git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
