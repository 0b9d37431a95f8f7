"""What LCM does to labs is no use of people; what people do in the lab of a running session is."""

import pytest
from msgspec.structs import replace

from lcm.domain.lablet.lab import SessionLab
from lcm.domain.lablet.own_actions import is_own_action
from lcm.domain.lablet.session import LabletSession, SessionHistoryEntry
from lcm.domain.lablet.states import INSTANTIATING, READY, RUNNING, SCHEDULED, STOPPING, TERMINATED
from support.lablets import at, session

LIFE = ((SCHEDULED, 0), (INSTANTIATING, 5), (READY, 10), (RUNNING, 15), (STOPPING, 60), (TERMINATED, 65))


def lived(steps: int = 6) -> LabletSession:
    lines = [
        SessionHistoryEntry(source=None, target=status, by="", reason="", at=at(minute))
        for status, minute in LIFE[:steps]
    ]
    return session(state_history=tuple(lines))


@pytest.mark.parametrize(
    ("minute", "is_own"),
    [(4, False), (4.6, True), (7, True), (10.4, True), (11, False), (40, False), (61, True), (66, False)],
)
def test_lcm_acts_until_the_session_is_ready_and_from_its_end_on(minute: float, *, is_own: bool) -> None:
    assert is_own_action(lived(), at(minute)) is is_own


def test_a_status_that_lasts_has_no_end() -> None:
    assert is_own_action(lived(2), at(500))
    assert not is_own_action(lived(4), at(500))


@pytest.mark.parametrize(
    ("minute", "came_up", "is_own"),
    [
        (39, 40, False),
        (40, 40, True),
        (41, 40, True),
        (19.6, None, True),
        (20.4, None, True),
        (21, None, False),
    ],
)
def test_the_start_of_a_lab_whose_worker_was_restarted_is_lcms(
    minute: float, came_up: float | None, *, is_own: bool
) -> None:
    """It is reported before the controller can record it."""
    lab = SessionLab(title="t", generation=1, intent_at=at(5), lab_id="l1", started_at=at(20))
    lived_on = replace(lived(4), lab=lab)
    came_up_at = at(came_up) if came_up is not None else None
    assert is_own_action(lived_on, at(minute), worker_came_up_at=came_up_at) is is_own


def test_a_session_without_a_past_does_nothing() -> None:
    assert not is_own_action(session(state_history=()), at(0))
