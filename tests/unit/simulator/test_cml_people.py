"""The people of a simulated server: seeded, active, and absent when switched off."""

from collections import Counter
from typing import Any

import pytest

from lcm.domain.idle import IdlePolicy
from lcm.simulator.cml.lab import State
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.server import CmlServer, Credentials, ServerOptions
from lcm.simulator.listing import ListedInstance
from lcm.simulator.pace import Delays, Pace

POWERED_ON_AT = 1_000_000.0
HOUR = 3600.0


def server(*, seed: int = 1, speed: float = 1.0, type_: str = "t3.large", people: bool = True) -> CmlServer:
    instance = ListedInstance(
        id="i-1",
        region="us-east-1",
        state="running",
        private_ip="127.64.0.4",
        public_ip="127.64.128.1",
        image_name="CML-2.9.1-20260415",
        image_id="ami-1",
        instance_type=type_,
        tags={},
        running_since=POWERED_ON_AT,
        generation=1,
    )
    cml = CmlServer(
        instance,
        credentials=Credentials("admin", "pw"),
        pace=Pace(seed=seed, speed=speed),
        delays=Delays(),
        secret=b"",
        pool=LicensePool("good", 1),
        server_options=ServerOptions(people=people),
    )
    cml.power_on(instance)
    return cml


def live(cml: CmlServer, seconds: float) -> list[dict[str, Any]]:
    """Everything telemetry knows after that long; the server is looked at whenever it wants to be."""
    end = POWERED_ON_AT + seconds
    while (due := cml.due_at()) is not None and due <= end:
        cml.advance(due)
    return cml.telemetry.events()


def test_the_same_seed_gives_the_same_life_and_another_seed_another() -> None:
    assert live(server(seed=3), HOUR) == live(server(seed=3), HOUR)
    assert live(server(seed=3), HOUR) != live(server(seed=4), HOUR)


@pytest.mark.parametrize("type_", ["t3.micro", "t3.large", "m5zn.metal"])
def test_within_a_day_people_do_everything_people_do(type_: str) -> None:
    cml = server(type_=type_)
    done = Counter(event["category"] for event in live(cml, 24 * HOUR))
    for category in ("start_lab", "queue_node", "boot_node", "stop_lab", "stop_node", "wipe_node"):
        assert done[category] > 5, category
    labs = cml.labs.all()
    assert len(labs) <= 2 * 4, "they tidy up"


def test_the_first_of_them_starts_a_lab_within_two_minutes() -> None:
    for seed in range(20):
        assert "start_lab" in {event["category"] for event in live(server(seed=seed), 120)}


def test_speed_divides_the_pauses_between_their_acts() -> None:
    def acts(speed: float) -> int:
        events = live(server(speed=speed), HOUR)
        return sum(event["category"] == "start_lab" for event in events)

    assert acts(10) > 4 * acts(1)


def test_a_quiet_server_stays_quiet_and_can_be_woken() -> None:
    cml = server(people=False)
    assert {event["category"] for event in live(cml, HOUR)}.isdisjoint({"start_lab", "user_activity"})
    cml.apply_options(ServerOptions(people=True), POWERED_ON_AT + HOUR)
    assert "start_lab" in {event["category"] for event in live(cml, 2 * HOUR)}


def test_a_lab_deleted_by_another_user_does_not_stop_people() -> None:
    cml = server()
    live(cml, 120)
    now = POWERED_ON_AT + 120
    for lab in cml.labs.all():
        cml.labs.stop(lab, now, "admin")
    cml.labs.advance(now + 10)
    for lab in cml.labs.all():
        cml.labs.wipe(lab, now + 10, "admin")
        cml.labs.delete(lab)
    before = len(cml.telemetry.events())
    assert len(live(cml, 2 * HOUR)) > before + 10


def test_labs_that_merely_run_never_look_like_a_busy_instance() -> None:
    """Only booting does, which a person requested: an unused lab does not prevent a pause."""
    cml = server(type_="t3.medium")
    settled: list[float] = []
    booting: list[float] = []
    for minute in range(1, 180):
        now = POWERED_ON_AT + 60 * minute
        live(cml, 60 * minute)
        cml.advance(now)
        is_booting = any(node.state is State.STARTED for node in cml.labs.nodes())
        (booting if is_booting else settled).append(cml.system_stats(now)["all"]["cpu"]["percent"])
    assert max(settled) < IdlePolicy().busy_cpu_percent < max(booting)
