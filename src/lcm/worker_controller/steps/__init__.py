"""Lifecycle steps, one file per status: a pure function from record and observation to a decision.

`STEPS` in `lcm.worker_controller.reconciler` selects the step; the reconciler carries out its decision.
"""
