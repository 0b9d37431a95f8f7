"""The scenarios, one module for each capability."""

from simulation.scenarios import fleet, idle, labs, lifecycle, monitoring, scheduling
from simulation.scenarios.base import RANDOM_STORIES, SCENARIOS, Script, knobs_of, story_of

__all__ = [
    "RANDOM_STORIES",
    "SCENARIOS",
    "Script",
    "fleet",
    "idle",
    "knobs_of",
    "labs",
    "lifecycle",
    "monitoring",
    "scheduling",
    "story_of",
]
