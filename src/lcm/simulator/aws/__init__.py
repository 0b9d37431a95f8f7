"""The simulated AWS. `server.py` wires it; `instances.py` is the instance lifecycle, without moto."""
