"""One simulated CML server, without sockets and in virtual time."""

from itertools import pairwise

import msgspec
import pytest
from msgspec.structs import replace

from lcm.simulator.cml.hardware import HARDWARE, Load, hardware_of, system_stats
from lcm.simulator.cml.licensing import LicensePool
from lcm.simulator.cml.server import CmlServer, Credentials, Query, ServerOptions, is_cml_image
from lcm.simulator.listing import ListedInstance
from lcm.simulator.pace import Delays, Pace

POWERED_ON_AT = 1_000_000.0
DAY = 86_400
ADMIN = Credentials("admin", "correct horse")


def instance(*, image_name: str = "CML-2.9.1-20260415", generation: int = 1) -> ListedInstance:
    return ListedInstance(
        id="i-1",
        region="us-east-1",
        state="running",
        private_ip="127.64.0.4",
        public_ip="127.64.128.1",
        image_name=image_name,
        image_id="ami-1",
        instance_type="m5zn.metal",
        tags={},
        running_since=POWERED_ON_AT,
        generation=generation,
    )


def test_the_disk_of_a_server_is_its_root_volume() -> None:
    assert hardware_of(replace(instance(), disk_gb=16)) == HARDWARE["m5zn.metal"]._replace(disk_gib=16)
    assert hardware_of(instance()) == HARDWARE["m5zn.metal"]


@pytest.fixture
def server() -> CmlServer:
    server = CmlServer(
        instance(),
        credentials=ADMIN,
        pace=Pace(seed=1, speed=1.0),
        delays=Delays(),
        secret=b"only this server's",
        pool=LicensePool("a-good-token", size=1),
        server_options=ServerOptions(people=False),
    )
    server.power_on(instance())
    return server


def get(server: CmlServer, path: str, *, after: float, token: str = "") -> tuple[int, bytes]:
    query = Query(method="GET", path=f"/api/v0/{path}", authorization=f"Bearer {token}" if token else "")
    answer = server.answer(query, POWERED_ON_AT + after)
    return answer.status, answer.body


def login(server: CmlServer, *, after: float) -> str:
    query = Query(method="POST", path="/api/v0/authenticate", body=msgspec.json.encode(ADMIN))
    return msgspec.json.decode(server.answer(query, POWERED_ON_AT + after).body, type=str)


def test_the_phases_of_a_boot_follow_its_schedule(server: CmlServer) -> None:
    boot = server.power_on(instance())
    assert get(server, "system_information", after=boot.loading_at - 0.01)[0] == 502
    assert b'"ready":false' in get(server, "system_information", after=boot.loading_at + 0.01)[1]
    assert b'"ready":true' in get(server, "system_information", after=boot.ready_at + 0.01)[1]


def test_each_boot_of_an_instance_has_its_own_schedule(server: CmlServer) -> None:
    assert server.power_on(instance()) == server.power_on(instance())
    assert server.power_on(instance()) != server.power_on(instance(generation=2))


def test_a_token_is_good_for_a_day_and_survives_a_reboot(server: CmlServer) -> None:
    token = login(server, after=60)
    server.power_on(instance(generation=2))
    assert get(server, "authok", after=60 + DAY - 1, token=token) == (200, b'"OK"')
    assert get(server, "authok", after=60 + DAY, token=token)[0] == 401


def test_a_forged_token_is_refused(server: CmlServer) -> None:
    header, claims, signature = login(server, after=60).split(".")
    for forged in (
        f"{header}.{claims}.",
        f"{header}.{claims}x.{signature}",
        f"{claims}.{header}.{signature}",
    ):
        assert get(server, "authok", after=61, token=forged)[0] == 401


@pytest.mark.parametrize(
    ("image_name", "version"),
    [("CML-2.8.1-20250310", "2.8.1+build.14"), ("CML-2.9.1-20260415", "2.9.1+build.7")],
)
def test_the_version_comes_from_the_image(server: CmlServer, image_name: str, version: str) -> None:
    server.power_on(instance(image_name=image_name))
    body = msgspec.json.decode(get(server, "system_information", after=60)[1])
    assert body["version"] == version


def test_only_images_named_after_cml_have_cml() -> None:
    assert is_cml_image("CML-2.9.1-20260415")
    assert not is_cml_image("build-agent-20260501")


def test_stats_are_the_same_for_the_same_moment_and_move_slowly() -> None:
    metal = HARDWARE["m5zn.metal"]

    def percents() -> list[float]:
        load = Load("1/load/127.64.0.4")
        return [system_stats(metal, load, minute * 60.0)["all"]["cpu"]["percent"] for minute in range(60)]

    series = percents()
    assert series == percents()
    assert len(set(series)) > 30
    assert all(0 < percent < 100 for percent in series)
    assert all(abs(a - b) < 5 for a, b in pairwise(series))


def test_stats_add_up() -> None:
    metal = HARDWARE["m5zn.metal"]
    stats = system_stats(metal, Load("any"), 3600.0)
    for usage in (stats["all"]["memory"], stats["all"]["disk"], stats["controller"]["disk"]):
        assert usage["used"] + usage["free"] == usage["total"]
    (compute,) = stats["computes"].values()
    assert compute["stats"]["cpu"]["count"] == 48
