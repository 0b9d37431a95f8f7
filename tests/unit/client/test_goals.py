"""What a record says of a goal."""

import pytest

from lcm.client.goals import WorkerGoal, standing_of_worker
from lcm.domain.license import License, LicenseOperation, LicenseStatus
from lcm.domain.lifecycle import RUNNING
from lcm.rest.schemas import WorkerView
from support.core import a_worker


@pytest.mark.parametrize(
    ("goal", "pending", "says"),
    [
        (WorkerGoal.LICENSED, None, "its license has failed: the token is not valid"),
        (WorkerGoal.LICENSED, LicenseOperation.REGISTER, ""),
        (WorkerGoal.READY, None, ""),
    ],
)
def test_a_license_that_was_given_up_is_not_waited_for(
    goal: WorkerGoal, pending: LicenseOperation | None, says: str
) -> None:
    failed = License(
        status=LicenseStatus.FAILED, last_error="the token is not valid", pending_operation=pending
    )
    worker = WorkerView.of(a_worker(status=RUNNING, license=failed))
    assert standing_of_worker(goal, worker).why_never == says
