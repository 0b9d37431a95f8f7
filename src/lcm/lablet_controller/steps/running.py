"""RUNNING: observe the lab until the session ends. What people do inside the lab is theirs."""

from lcm.domain.observation import Absent
from lcm.lablet_controller.decisions import Decision, Situation, Unschedule, Wait, fail


def decide(situation: Situation) -> Decision:
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost:
        return Unschedule(f"worker_lost: {situation.describe_worker()}", is_worker_lost=True)
    if isinstance(situation.seen, Absent):
        return fail("lab_deleted_outside: the lab was deleted, and not by LCM")
    return Wait("in use", situation.seconds_until(situation.session.ends_at))


def end(situation: Situation) -> Decision:
    """COLLECTING and GRADING: nothing collects or grades yet."""
    return situation.end()
