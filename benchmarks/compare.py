"""Run benchmarks on two commits in turns and print their figures side by side: `make bench-compare BASE=…`.

Hosts differ and are noisy, so both commits are measured in one run, round by round. The other commit gets a
worktree with an environment of its own below `.bench/`. The host must have nothing else to do.
"""

import argparse
import json
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
BENCHMARKS = ("click_to_ec2", "commands", "reconcile_machinery", "settled_fleet", "ws_ingest")

Figures = Mapping[str, float]


def worktree_of(commit: str) -> Path:
    """Check the commit out beside this one, and set it up as `make setup` of that commit does."""
    tree = ROOT / ".bench" / commit
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True)
    subprocess.run(["make", "--no-print-directory", "setup"], cwd=tree, check=True)
    return tree


def measure(tree: Path, benchmark: str) -> Figures:
    """Run one benchmark of a commit with that commit's Python; return its figures and ratios."""
    command = [str(tree / ".venv" / "bin" / "python"), f"benchmarks/{benchmark}.py", "--json"]
    printed = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(printed.splitlines()[-1])
    return {**result["figures"], **{f"ratio: {name}": value for name, value in result["ratios"].items()}}


def compared(base: Sequence[Figures], here: Sequence[Figures]) -> list[tuple[str, float, float]]:
    """Return the median of each figure that both commits have."""
    medians = []
    for runs in (base, here):
        values = defaultdict(list)
        for figures in runs:
            for name, value in figures.items():
                values[name].append(value)
        medians.append({name: statistics.median(found) for name, found in values.items()})
    before, after = medians
    return [(name, value, after[name]) for name, value in before.items() if name in after]


def table_of(benchmark: str, base: str, rows: Sequence[tuple[str, float, float]]) -> Table:
    table = Table("figure", base, "here", "here / then", title=benchmark)
    for name, before, after in rows:
        change = f"{after / before:.2f}" if before else "-"
        table.add_row(name, f"{before:.4g}", f"{after:.4g}", change)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tree, console = worktree_of(options.base), Console()
    for benchmark in options.benchmarks:
        base, here = [], []
        for _ in range(options.rounds):
            base.append(measure(tree, benchmark))
            here.append(measure(ROOT, benchmark))
        console.print(table_of(benchmark, options.base, compared(base, here)))


if __name__ == "__main__":
    main()
