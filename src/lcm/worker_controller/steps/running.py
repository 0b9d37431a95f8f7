"""RUNNING: first what people want, then what EC2 did without us, then look after the worker (see `care`)."""

from lcm.worker_controller.decisions import Decision, Situation
from lcm.worker_controller.running import desired_state, drift


def decide(situation: Situation) -> Decision:
    return desired_state.decide(situation.worker) or drift.decide(situation.worker, situation.seen)
