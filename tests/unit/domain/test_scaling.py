"""What keeps the fleet from shrinking, in order."""

from typing import Any

import pytest

from lcm.domain.scaling import AuditEvent, ScaleDownPolicy, scale_down_guard

POLICY = ScaleDownPolicy(enabled=True, min_workers=2)
MAY_GO: dict[str, Any] = {
    "is_being_paused": False,
    "is_idle": True,
    "is_eligible": True,
    "running_workers": 3,
    "seconds_since_last": None,
}


def test_an_idle_worker_above_the_minimum_may_go() -> None:
    assert scale_down_guard(POLICY, **MAY_GO) is None


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ({"is_being_paused": True}, "skipped_auto_pause"),
        ({"is_idle": False}, "skipped_not_idle"),
        ({"is_eligible": False}, "skipped_not_eligible"),
        ({"running_workers": 2}, "skipped_min_workers"),
        ({"seconds_since_last": 599.0}, "skipped_cooldown"),
    ],
)
def test_a_guard_has_its_own_label(facts: dict[str, object], label: str) -> None:
    assert scale_down_guard(POLICY, **{**MAY_GO, **facts}) == AuditEvent(label)


def test_the_guards_are_asked_in_the_order_of_their_labels() -> None:
    facts: dict[str, Any] = {
        "is_being_paused": True,
        "is_idle": False,
        "is_eligible": False,
        "running_workers": 0,
        "seconds_since_last": 0.0,
    }
    labels = []
    for name, harmless in MAY_GO.items():
        labels.append(scale_down_guard(POLICY, **facts))
        facts[name] = harmless
    assert labels == [
        "skipped_auto_pause",
        "skipped_not_idle",
        "skipped_not_eligible",
        "skipped_min_workers",
        "skipped_cooldown",
    ]
    assert scale_down_guard(POLICY, **facts) is None


def test_the_cooldown_ends() -> None:
    assert scale_down_guard(POLICY, **{**MAY_GO, "seconds_since_last": 600.0}) is None
