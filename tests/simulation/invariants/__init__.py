"""The invariants of every simulated run, one module for each capability."""

from simulation.invariants import fleet, idle, lifecycle, monitoring, scheduling
from simulation.invariants.base import ALL, Invariant

__all__ = ["ALL", "Invariant", "fleet", "idle", "lifecycle", "monitoring", "scheduling"]
