"""How a scenario is added: write a function under one of these, and it is in the list."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from simulation.story import Story
from simulation.world.knobs import Knobs

COMMON_STORY: Final = "wander"

Tell = Callable[[Story], Awaitable[None]]
Draw = Callable[[int], Knobs]
"""The settings of a seed."""


@dataclass(frozen=True)
class Scenario:
    """A story, and the settings it is told under."""

    tell: Tell
    knobs: Knobs


SCENARIOS: dict[str, Scenario] = {}
"""Told step by step; the exhaustive pass disturbs them everywhere."""

RANDOM_STORIES: dict[str, Tell] = {}
"""Drawn from a seed, and so are their settings and faults."""

DRAWN_BY: dict[str, Draw] = {}
"""How the settings of each random story are drawn."""


def scenario(tell: Tell) -> Tell:
    return under(Knobs())(tell)


def under(knobs: Knobs) -> Callable[[Tell], Tell]:
    """A scenario with other settings than the installed ones."""

    def add(tell: Tell) -> Tell:
        SCENARIOS[tell.__name__] = Scenario(tell, knobs)
        return tell

    return add


def random_story(tell: Tell) -> Tell:
    return drawn_by(Knobs.draw)(tell)


def drawn_by(draw: Draw) -> Callable[[Tell], Tell]:
    """A random story that needs settings of another kind."""

    def add(tell: Tell) -> Tell:
        RANDOM_STORIES[tell.__name__] = tell
        DRAWN_BY[tell.__name__] = draw
        return tell

    return add


def random_story_with(**settings: Any) -> Callable[[Tell], Tell]:
    """A random story in which these settings are not left to chance."""
    return drawn_by(lambda seed: replace(Knobs.draw(seed), **settings))


def knobs_of(scenario: str, seed: int) -> Knobs:
    """The settings that a scenario, or this run of a random story, is told under."""
    return DRAWN_BY[scenario](seed) if scenario in RANDOM_STORIES else SCENARIOS[scenario].knobs


def story_of(seed: int) -> str:
    """The story of a seed in a mixed run: every second is the common one, the others take turns."""
    others = sorted(RANDOM_STORIES.keys() - {COMMON_STORY})
    return others[seed // 2 % len(others)] if others and seed % 2 else COMMON_STORY
