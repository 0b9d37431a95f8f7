"""Decorators that register scenarios: a decorated function is in the list."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from simulation.story import Story
from simulation.world.knobs import Knobs

COMMON_STORY: Final = "wander"

Script = Callable[[Story], Awaitable[None]]
Draw = Callable[[int], Knobs]
"""The settings of a seed."""


@dataclass(frozen=True)
class Scenario:
    """A script, and the settings it runs under."""

    script: Script
    knobs: Knobs


SCENARIOS: dict[str, Scenario] = {}
"""Run step by step; the exhaustive pass injects faults at every point of them."""

RANDOM_STORIES: dict[str, Script] = {}
"""Drawn from a seed, and so are their settings and faults."""

DRAWN_BY: dict[str, Draw] = {}
"""How the settings of each random story are drawn."""


def scenario(script: Script) -> Script:
    return under(Knobs())(script)


def under(knobs: Knobs) -> Callable[[Script], Script]:
    """Register a scenario with other settings than the installed ones."""

    def add(script: Script) -> Script:
        SCENARIOS[script.__name__] = Scenario(script, knobs)
        return script

    return add


def random_story(script: Script) -> Script:
    return drawn_by(Knobs.draw)(script)


def drawn_by(draw: Draw) -> Callable[[Script], Script]:
    """Register a random story with its own draw of settings."""

    def add(script: Script) -> Script:
        RANDOM_STORIES[script.__name__] = script
        DRAWN_BY[script.__name__] = draw
        return script

    return add


def random_story_with(**settings: Any) -> Callable[[Script], Script]:
    """Register a random story with these settings fixed."""
    return drawn_by(lambda seed: replace(Knobs.draw(seed), **settings))


def knobs_of(scenario: str, seed: int) -> Knobs:
    """The settings of a scenario, or of this run of a random story."""
    return DRAWN_BY[scenario](seed) if scenario in RANDOM_STORIES else SCENARIOS[scenario].knobs


def story_of(seed: int) -> str:
    """The story of a seed in a mixed run: every second is the common one, the others alternate."""
    others = sorted(RANDOM_STORIES.keys() - {COMMON_STORY})
    return others[seed // 2 % len(others)] if others and seed % 2 else COMMON_STORY
