"""The output of every benchmark: a table for people, one JSON object for scripts.

Hosts differ and are noisy: the claim is a ratio of two things measured in the same run.
"""

import argparse
import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def report(
    name: str, rows: Sequence[tuple[str, str]], ratios: Mapping[str, float], figures: Mapping[str, float]
) -> None:
    """Print the table, and with --json the object as the last line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    table = Table("what", "value", title=name)
    for row in rows:
        table.add_row(*row)
    for label, ratio in ratios.items():
        table.add_row(f"ratio: {label}", f"{ratio:.3g}")
    Console().print(table)
    if parser.parse_known_args()[0].json:
        rounded = {label: round(value, 9) for label, value in figures.items()}
        print(json.dumps({"name": name, "ratios": dict(ratios), "figures": rounded}))


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
