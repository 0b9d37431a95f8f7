"""The invariants of every simulated run, one module for each capability."""

from simulation.invariants import fleet, idle, labs, lifecycle, monitoring, scheduling
from simulation.invariants.base import ALL, Invariant

__all__ = ["ALL", "Invariant", "fleet", "idle", "labs", "lifecycle", "monitoring", "scheduling"]
