"""RUNNING: first the desired status, then drift at EC2, then maintenance (see the package `running`)."""

from lcm.worker_controller.decisions import Decision, Situation
from lcm.worker_controller.running import desired_state, drift


def decide(situation: Situation) -> Decision:
    return desired_state.decide(situation.worker) or drift.decide(situation.worker, situation.observation)
