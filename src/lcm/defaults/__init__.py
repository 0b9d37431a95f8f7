"""The files that LCM ships with, and the order in which it looks for those of an installation.

A flag or an environment variable that names a file wins. Otherwise it is the first that exists of `./config`,
`/etc/lcm` and this package. `lcm init` writes copies to edit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

BUILT_IN: Final = Path(__file__).parent
NAMES: Final = ("regions.yaml", "worker_templates.yaml")
PLACES: Final = (Path("config"), Path("/etc/lcm"), BUILT_IN)


def find(name: str) -> Path:
    """Return the file of this name that is in force."""
    return next(place / name for place in PLACES if (place / name).is_file())


def write_copies(directory: Path) -> Iterator[tuple[Path, bool]]:
    """Write a copy of each file and yield its path; the flag is false for one that existed and was kept."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        copy = directory / name
        try:
            with copy.open("x") as file:
                file.write((BUILT_IN / name).read_text())
        except FileExistsError:
            yield copy, False
        else:
            yield copy, True
