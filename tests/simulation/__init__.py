"""The seeded proof: scenarios, invariants, faults, and planted bugs that must be caught."""
