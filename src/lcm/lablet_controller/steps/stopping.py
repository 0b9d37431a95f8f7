"""STOPPING: stop, wipe and delete the lab, and prove that it is gone. Until then its claim is held."""

from lcm.domain.lablet.lab import CleanupProof
from lcm.domain.observation import Absent, Known, Unknown
from lcm.lablet_controller.decisions import Adopt, Clean, Decision, Delete, Situation, Wait
from lcm.lablet_controller.steps import removal


def decide(situation: Situation) -> Decision:
    lab = situation.session.lab
    if lab is None:
        return Clean(CleanupProof.NEVER_IMPORTED)
    if situation.is_worker_lost:
        return Clean(CleanupProof.WORKER_GONE)
    if not situation.is_worker_usable:
        return Wait(f"{situation.describe_worker()}; the lab is removed when it is back")
    match situation.seen:
        case Unknown(reason):
            return Wait(reason)
        case Absent():
            return Clean(CleanupProof.LAB_ABSENT)
        case Known(view) if lab.lab_id is None:
            return Adopt(view.lab_id)
        case Known(view):
            return removal.wiped(situation, view) or Delete()
