"""Which tags of an instance are touched when people change those of a worker."""

import pytest

from lcm.domain.errors import ActionRefused
from lcm.domain.launch import tag_changes
from lcm.domain.lifecycle import RUNNING, TERMINATED, DesiredStatus
from lcm.domain.requests import MAX_RETIRED_TAGS, retag
from support.core import NOON, a_worker

DEFAULTS = {"Name": "lab-1", "worker_id": "w-1", "cml-managed": "true"}
ON_IT = {**DEFAULTS, "team": "a", "put-there": "by somebody"}


@pytest.mark.parametrize(
    ("wanted", "retired", "put", "remove"),
    [
        ({"team": "a"}, (), {}, ()),
        ({"team": "b"}, (), {"team": "b"}, ()),
        ({}, ("team",), {}, ("team",)),
        ({"team": "c"}, ("team",), {"team": "c"}, ()),
        ({"Name": "other"}, (), {"Name": "other"}, ()),
        ({}, ("Name",), {}, ()),
        ({}, ("never-there",), {}, ()),
        ({"worker_id": "w-2", "cml-managed": "no"}, ("worker_id",), {}, ()),
    ],
)
def test_only_tags_that_people_set_are_touched(
    wanted: dict[str, str], retired: tuple[str, ...], put: dict[str, str], remove: tuple[str, ...]
) -> None:
    assert tag_changes(ON_IT, wanted=wanted, retired=retired, defaults=DEFAULTS) == (put, remove)


def test_a_default_that_was_overridden_comes_back() -> None:
    changes = tag_changes({**ON_IT, "Name": "other"}, wanted={}, retired=("Name",), defaults=DEFAULTS)
    assert changes == ({"Name": "lab-1"}, ())


def test_other_tags_are_a_new_request_and_the_old_ones_are_kept_as_retired() -> None:
    worker = retag(
        a_worker(status=RUNNING, tags={"team": "a", "room": "1"}), {"room": "2"}, by="ada", now=NOON
    )
    assert (worker.tags, worker.retired_tags, worker.generation) == ({"room": "2"}, ("team",), 2)
    assert retag(worker, {"room": "2"}, by="ada", now=NOON) is worker
    back = retag(worker, {"team": "b"}, by="ada", now=NOON)
    assert back.retired_tags == ("room",)


def test_what_was_taken_back_is_remembered_within_bounds() -> None:
    worker = a_worker(status=RUNNING)
    for number in range(MAX_RETIRED_TAGS + 10):
        worker = retag(worker, {f"t{number}": "x"}, by="ada", now=NOON)
    assert len(worker.retired_tags) == MAX_RETIRED_TAGS
    assert worker.retired_tags[-1] == f"t{MAX_RETIRED_TAGS + 8}"


def test_a_worker_that_goes_is_not_tagged_any_more() -> None:
    for worker in (a_worker(status=TERMINATED), a_worker(desired_status=DesiredStatus.TERMINATED)):
        with pytest.raises(ActionRefused):
            retag(worker, {"team": "a"}, by="ada", now=NOON)
