"""The simulated AWS. `server.py` wires it; `machines.py` holds its rules and knows nothing of moto."""
