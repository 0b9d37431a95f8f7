"""RUNNING: first what people want, then what EC2 did without us, then look after the worker (see `care`)."""

from lcm.worker_controller.care import drift, wish
from lcm.worker_controller.decisions import Decision, Situation


def decide(situation: Situation) -> Decision:
    return wish.decide(situation.worker) or drift.decide(situation.worker, situation.seen)
