"""The names of all metrics that LCM makes, as Prometheus spells them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def measured() -> set[str]:
    """Every name an instrument is made with."""
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r"telemetry\.(?:gauge|counter|durations)\(\s*\"([a-z0-9_.]+)\"", code))
    prefixes = re.findall(r"metric_prefix: str = \"(\w+)\"", code)
    names |= set(re.findall(r"telemetry\.durations_by\(\s*\"\w+\",\s*\"([a-z0-9_.]+)\"", code))
    names |= {prefix + suffix for prefix in prefixes for suffix in re.findall(r"\{prefix\}(_\w+)\"", code)}
    # The contract's own, which the worker controller exports once it watches workers.
    contract = (ROOT / "docs" / "mission.md").read_text()
    names |= set(re.findall(r"lcm\.worker\.websocket\.[a-z_]+", contract))
    return {name.replace(".", "_") for name in names}
