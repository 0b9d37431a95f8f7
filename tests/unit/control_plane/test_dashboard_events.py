"""The dashboard subscribes to every event of a worker: a missing one is a change that it does not show."""

import inspect
import re
from pathlib import Path

from lcm.control_plane.streaming import event_names as worker_events

EVENTS_TS = Path(__file__).parents[3] / "ui" / "src" / "events.ts"


def test_the_dashboard_subscribes_to_every_event_with_a_workers_record() -> None:
    code = inspect.getsource(worker_events)
    published = set(re.findall(r'"(worker\.[a-z_.]+)"', code))
    subscribed = set(re.findall(r'"(worker\.[a-z_.]+)"', EVENTS_TS.read_text()))
    assert "worker.paused" in published
    assert published - subscribed == set()
