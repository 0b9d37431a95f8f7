"""RUNNING: observe the lab until the session ends. What people do inside the lab is theirs."""

from lcm.domain.lablet.definition import Collect
from lcm.domain.lablet.states import COLLECTING
from lcm.domain.observation import Absent
from lcm.lablet_controller.decisions import Decision, Move, Situation, Unschedule, Wait, fail


def decide(situation: Situation) -> Decision:
    if situation.must_end:
        return _begin_end(situation)
    if situation.is_worker_lost:
        return Unschedule(f"worker_lost: {situation.describe_worker()}", is_worker_lost=True)
    if isinstance(situation.seen, Absent):
        return fail("lab_deleted_outside: the lab was deleted, and not by LCM")
    return Wait("in use", situation.seconds_until(situation.session.ends_at))


def _begin_end(situation: Situation) -> Decision:
    if situation.session.collect is Collect.NONE or situation.is_worker_lost:
        return situation.end()
    return Move(COLLECTING, "it ends")


def end(situation: Situation) -> Decision:
    """GRADING: nothing grades yet."""
    return situation.end()
