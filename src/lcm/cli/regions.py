"""The regions file: the regions and networks in which workers may be launched."""

from pathlib import Path

from lcm.core.configuration import ConfigurationError, Marked, Mistake, check, read_yaml
from lcm.domain.template import RegionConfig


def read_regions(path: Path) -> tuple[dict[str, RegionConfig], str]:
    """The regions by name, and the default one. Raises ConfigurationError with every mistake on its line."""
    config = read_yaml(path)
    entries = config.get("aws_region_configs")
    if not isinstance(entries, Marked) or not entries:
        line = config.lines.get("aws_region_configs")
        raise ConfigurationError(
            str(Mistake(str(path), line, "aws_region_configs", "it must have at least one region"))
        )
    regions: dict[str, RegionConfig] = {}
    mistakes: list[Mistake] = []
    for name, entry in entries.items():
        found = check(entry, RegionConfig, within=entries, at=name)
        if isinstance(found, list):
            mistakes += found
        elif found.region != name:
            message = f"it is {found.region!r}, but its key is {name!r}"
            mistakes.append(Mistake(str(path), entry.lines.get("region"), f"{name}.region", message))
        else:
            regions[name] = found
    default = config.get("aws_default_region", next(iter(entries)))
    if default not in entries:
        line = config.lines.get("aws_default_region")
        message = f"{default!r} is not among: {', '.join(entries)}"
        mistakes.append(Mistake(str(path), line, "aws_default_region", message))
    if mistakes:
        raise ConfigurationError("\n".join(str(mistake) for mistake in mistakes))
    return regions, default
