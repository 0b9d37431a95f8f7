"""Real processes, killed, frozen and starved; every test ends with the same invariants."""
