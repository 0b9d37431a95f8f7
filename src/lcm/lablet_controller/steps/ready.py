"""READY: wait for the timeslot; without one the session runs at once.

A lab whose worker was restarted meanwhile is started again, so that it is there when the timeslot begins.
"""

from lcm.domain.lablet.states import RUNNING
from lcm.lablet_controller.decisions import Decision, Move, Situation, Start, Unschedule, Wait


def decide(situation: Situation) -> Decision:
    slot = situation.session.timeslot
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost:
        return Unschedule(f"worker_lost: {situation.describe_worker()}", is_worker_lost=True)
    if situation.has_worker_restarted and situation.is_worker_usable:
        return Start()
    if slot is not None and situation.now < slot.start:
        return Wait("the timeslot has not begun", situation.seconds_until(slot.start))
    return Move(RUNNING, "the session began")
