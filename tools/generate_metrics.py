"""The reference of all metrics, read from the code that registers them."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SOURCES: Final = Path(__file__).parents[1] / "src" / "lcm"
KINDS: Final[Mapping[str, str]] = {
    "gauge": "gauge",
    "counter": "counter",
    "durations": "histogram",
    "durations_by": "histogram",
}
PLACES: Final[Mapping[str, str]] = {
    "control_plane": "control plane",
    "worker_controller": "worker controller",
    "resource_scheduler": "resource scheduler",
    "lablet_controller": "lablet controller",
    "core/loop.py": "each controller",
    "": "each process",
}
"""Which process has the metrics of a package; the first that fits."""
PREFIX: Final = "reconciliation"
"""What controllers put before the names of their loop: ReconciliationLoop's `metric_prefix`."""


class Described(NamedTuple):
    name: str
    kind: str
    process: str
    meaning: str


def metrics() -> list[Described]:
    """Return every metric, by its name."""
    found = {each for path in SOURCES.rglob("*.py") for each in _registered_in(path)}
    return sorted(found)


def metrics_page() -> str:
    """Return the page of the reference."""
    lines = [
        "# Metrics",
        "",
        "Every process has `/metrics` in Prometheus' format; a histogram has the parts `_bucket`, `_sum` and",
        "`_count`. What several control planes all know, such as `lcm_workers` and `lcm_fleet_month_usd`, is",
        "read with `max`, never added up over them. Alerts: [answer an alert](../how-to/answer-an-alert.md).",
        "",
        "| metric | type | process | meaning |",
        "|---|---|---|---|",
        *(f"| `{each.name}` | {each.kind} | {each.process} | {each.meaning} |" for each in metrics()),
    ]
    return "\n".join(lines) + "\n"


def _registered_in(path: Path) -> Iterator[Described]:
    inside = path.relative_to(SOURCES).as_posix()
    process = next(name for place, name in PLACES.items() if inside.startswith(place))
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        kind = node.func.attr
        texts = [_text(each) for each in node.args]
        if kind == "durations_by":
            texts = texts[1:]
        if kind in KINDS and len(texts) >= 2 and texts[0] and texts[1]:
            yield Described(texts[0].replace(".", "_"), KINDS[kind], process, texts[1])


def _text(node: ast.expr) -> str:
    """Return what a text of the code says; nothing for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            PREFIX if isinstance(part, ast.FormattedValue) else _text(part) for part in node.values
        )
    return ""
