"""On the lowest versions that pyproject.toml allows every module loads, and what rests on others works.

`make lowest` runs all quick tests on them, which takes minutes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOWEST = Path(sys.prefix) / "lowest" / "bin" / "python"
LOAD_ALL = """
import importlib, pkgutil, lcm
for module in pkgutil.walk_packages(lcm.__path__, "lcm."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
ON_OTHER_LIBRARIES = (
    "web",
    "client",
    "cli/test_settings.py",
    "control_plane/test_routes.py",
    "control_plane/test_openapi_document.py",
    "control_plane/test_oidc.py",
    "control_plane/test_sealing.py",
)
"""Forms, routes, documents, signatures, encryption."""

pytestmark = pytest.mark.skipif(not LOWEST.is_file(), reason="make lowest installs the lowest versions")


def run(*arguments: str | Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [LOWEST, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_loads_in_the_lowest_versions() -> None:
    run("-c", LOAD_ALL)


def test_what_rests_on_other_libraries_works_in_the_lowest_versions() -> None:
    options = ("-q", "-p", "no:cacheprovider", "-W", "default::DeprecationWarning")
    run("-m", "pytest", *options, *(f"tests/unit/{each}" for each in ON_OTHER_LIBRARIES))
