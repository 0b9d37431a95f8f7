"""Bugs that were made on purpose: a proof that cannot fail proves nothing.

The harness must catch every one. One module for each capability.
"""

from simulation.planted import fleet, idle, labs, lifecycle, monitoring, scheduling
from simulation.planted.base import PLANTED

__all__ = ["PLANTED", "fleet", "idle", "labs", "lifecycle", "monitoring", "scheduling"]
