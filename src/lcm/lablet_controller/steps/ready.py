"""READY: wait for the timeslot; without one the session runs at once."""

from lcm.domain.lablet.states import RUNNING
from lcm.lablet_controller.decisions import Decision, Move, Situation, Unschedule, Wait


def decide(situation: Situation) -> Decision:
    slot = situation.session.timeslot
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost:
        return Unschedule(f"worker_lost: {situation.describe_worker()}", is_worker_lost=True)
    if slot is not None and situation.now < slot.start:
        return Wait("the timeslot has not begun", situation.seconds_until(slot.start))
    return Move(RUNNING, "the session began")
