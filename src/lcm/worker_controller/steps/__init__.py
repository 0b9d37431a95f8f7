"""One file per status: given the record and what EC2 shows, what is to be done? Pure functions.

`STEPS` in `lcm.worker_controller.reconciler` chooses the step; the reconciler carries its decision out.
"""
