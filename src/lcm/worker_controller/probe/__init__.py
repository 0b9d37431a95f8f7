"""`lcm probe cml`: which assumptions of LCM about CML hold on one server. Reads only.

`collect.py` gathers evidence, `assumptions.py` judges it, `report.py` writes what may be passed on.
"""
