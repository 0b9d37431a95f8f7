"""What the demo shows of lablet sessions."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import yaml

from lcm.cli.demo_sessions import Definition, classes, definitions, next_quarter
from lcm.cli.up import DEMO_FLEET
from lcm.control_plane.records.templates import read_templates
from lcm.domain.capacity import declared_by
from lcm.domain.lablet.filters import fits, vector
from lcm.domain.lablet.topology import analyse
from lcm.rest.lablet_requests import NewBatch, NewDefinition
from support.fleet import TEMPLATES

NOW = datetime(2026, 3, 2, 9, 58, tzinfo=UTC)


@pytest.mark.parametrize("definition", definitions(), ids=lambda definition: str(definition["name"]))
def test_every_lab_of_the_demo_is_without_a_mistake_and_runs_on_a_worker_of_the_demo(
    definition: Definition,
) -> None:
    request = msgspec.convert(definition, NewDefinition)
    lab = analyse(request.lab_yaml)
    assert (lab.warnings, lab.unknown_definitions) == ((), ())
    templates, _ = read_templates(yaml.safe_load(TEMPLATES.read_text()))
    rooms = {template.name: vector(declared_by(template)) for template in templates}
    assert any(fits(vector(lab.needs), rooms[template]) for _, template in DEMO_FLEET)


def test_the_classes_of_the_demo_are_valid_bookings_of_its_definitions() -> None:
    limits = {each["name"]: each["options"]["max_duration_minutes"] for each in definitions()}
    for name, body in classes(NOW):
        request = msgspec.convert({"definition": name, **body}, NewBatch)
        if request.timeslot is not None:
            timeslot = request.timeslot.booked()
            assert timeslot.start > NOW
            assert timeslot.duration.total_seconds() <= 60 * limits[name]


@pytest.mark.parametrize(
    ("now", "expected"),
    [("09:58:59", "10:00"), ("09:59:00", "10:00"), ("09:59:01", "10:15"), ("23:59:30", "00:15")],
)
def test_a_class_of_the_demo_starts_at_the_next_quarter_of_an_hour_for_which_workers_can_boot(
    now: str, expected: str
) -> None:
    start = next_quarter(datetime.fromisoformat(f"2026-03-02T{now}+00:00"))
    assert f"{start:%H:%M:%S}" == f"{expected}:00"


def test_one_class_of_the_demo_starts_at_once_and_one_within_the_lead_time() -> None:
    slots = [body.get("timeslot") for _, body in classes(NOW)]
    assert None in slots
    starts = [datetime.fromisoformat(slot["start"]) for slot in slots if slot]
    assert min(starts) - NOW < timedelta(minutes=35)
