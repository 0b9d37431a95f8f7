"""The simulated CML servers, over real TLS at the addresses EC2 tells."""

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lcm.core.timeouts import timeout
from lcm.simulator.main import Delays, SimulationInfo, SimulationSettings, run
from support.patience import PATIENCE_SECONDS
from support.processes import eventually

PHASES = ["refused", "502", "not ready", "ready"]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A place in which nothing may be left behind."""
    yield tmp_path / "data"
    assert list((tmp_path / "data").iterdir()) == []


# Coming up and going down


async def test_a_client_sees_refused_then_502_then_not_ready_then_ready(
    open_cloud: Any, open_cml: Any, data_dir: Path
) -> None:
    # given a world in which each phase lasts long enough to be seen
    delays = Delays(
        launch_seconds=0.1, cml_boot_seconds=0.5, cml_gateway_seconds=0.5, cml_loading_seconds=0.5
    )
    settings = SimulationSettings(seed=7, data_dir=data_dir, delays=delays)
    ready: asyncio.Queue[SimulationInfo] = asyncio.Queue(1)
    async with asyncio.TaskGroup() as tasks:
        world = tasks.create_task(run(settings, ready.put_nowait))
        async with timeout(PATIENCE_SECONDS):
            info = await ready.get()
        async with open_cloud(info) as cloud, open_cml(info) as cml:
            # when an instance is launched and somebody looks all the time
            # then every phase is seen, in order, and nothing is left once the world has ended
            async def address_of_one_whose_phases_were_all_seen() -> str | None:
                address = str((await cloud.request_launch())["PrivateIpAddress"])
                seen = await cml.looks_until_ready(address)
                assert seen == [phase for phase in PHASES if phase in seen]
                return address if seen == PHASES else None  # who stood still may have missed one

            address = await eventually(address_of_one_whose_phases_were_all_seen)
            world.cancel()
            await cloud.is_silent()
            await cml.becomes(address, "refused")


async def test_a_server_is_reached_at_both_of_its_addresses(cloud: Any, cml: Any) -> None:
    instance = await cloud.running()
    await cml.becomes(instance["PrivateIpAddress"], "ready")
    await cml.becomes(instance["PublicIpAddress"], "ready")


async def test_a_server_goes_with_its_instance_and_comes_back_with_the_same_certificate(
    cloud: Any, cml: Any, new_address: str
) -> None:
    before = await cml.certificate(new_address)
    (instance_id,) = await cloud.instances_with("private-ip-address", new_address)

    await cloud.move("stop", instance_id)
    await cml.becomes(new_address, "refused")
    await cloud.reaches(instance_id, "stopped")

    await cloud.move("start", instance_id)
    await cml.becomes(new_address, "ready")
    assert await cml.certificate(new_address) == before


async def test_open_connections_break_when_the_instance_stops(cloud: Any, cml: Any, new_address: str) -> None:
    reader, writer = await cml.connect(new_address)
    (instance_id,) = await cloud.instances_with("private-ip-address", new_address)
    await cloud.console("stop", instance_id)
    async with timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_rebooted_server_boots_again(cloud: Any, cml: Any, new_address: str) -> None:
    (instance_id,) = await cloud.instances_with("private-ip-address", new_address)
    await cloud.ec2.reboot_instances(InstanceIds=[instance_id])
    await cml.becomes(new_address, "refused", "502", "not ready")
    await cml.becomes(new_address, "ready")


async def test_servers_have_certificates_of_their_own(cml: Any, address: str, new_address: str) -> None:
    assert await cml.certificate(new_address) != await cml.certificate(address)


async def test_a_machine_with_another_image_serves_no_cml(cloud: Any, cml: Any) -> None:
    # given a machine that is no CML server, and one launched after it that is
    decoy = await cloud.launch(ImageId=(await cloud.images("build-agent-*"))[0]["ImageId"])
    decoy_address = (await cloud.reaches(decoy, "running"))["PrivateIpAddress"]
    later_address = (await cloud.running())["PrivateIpAddress"]
    # when the later one has come up
    await cml.becomes(later_address, "ready")
    # then the first would have, too
    assert await cml.look(decoy_address) == "refused"


async def test_two_simulators_live_side_by_side(
    cml: Any, address: str, start_simulator: Any, open_cloud: Any, open_cml: Any
) -> None:
    with start_simulator() as second:
        async with open_cloud(second.info) as other_cloud, open_cml(second.info) as other_cml:
            instance = await other_cloud.running()
            await other_cml.becomes(instance["PrivateIpAddress"], "ready")
        assert second.info.cml_port != cml.info.cml_port
        assert second.info.cml_password == cml.info.cml_password, "the seed is the same"
        assert second.info.license_token == cml.info.license_token
        assert await cml.look(address) == "ready"


# What it answers


async def test_system_information_needs_no_token_and_tells_the_version_of_the_image(
    cml: Any, address: str
) -> None:
    answer = await cml.ask(address, "system_information")
    assert answer.status == 200
    assert answer.body == {
        "version": "2.9.1+build.7",
        "ready": True,
        "allow_ssh_pubkey_auth": False,
        "oui": "52:54:00:00:00:00",
    }


async def test_a_login_gives_a_bare_token_for_a_day(cml: Any, address: str) -> None:
    token = await cml.login(address)
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["iss"] == "com.cisco.virl"
    assert claims["exp"] - claims["iat"] == 86_400
    assert claims["sub"] == "00000000-0000-4000-a000-000000000000"
    assert (await cml.ask(address, "authok", token=token)).body == "OK"


async def test_a_wrong_password_is_403_and_a_bad_body_400(cml: Any, address: str) -> None:
    wrong = await cml.ask(
        address, "authenticate", method="POST", body={"username": "admin", "password": "guess"}
    )
    assert wrong.status == wrong.body["code"] == 403
    assert wrong.body.keys() == {"code", "description"}
    bad = await cml.ask(address, "authenticate", method="POST", body={"user": "admin"})
    assert bad.status == bad.body["code"] == 400


async def test_without_a_token_of_this_server_stats_are_401(cml: Any, address: str, new_address: str) -> None:
    for token in (None, "nonsense", "a.b.c", await cml.login(new_address)):
        answer = await cml.ask(address, "system_stats", token=token)
        assert answer.status == answer.body["code"] == 401


async def test_stats_describe_the_hardware_of_the_instance_type(cml: Any, address: str) -> None:
    answer = await cml.ask(address, "system_stats", token=await cml.login(address))
    assert answer.status == 200
    (compute,) = answer.body["computes"].values()
    assert answer.body["all"]["cpu"]["count"] == compute["stats"]["cpu"]["count"] == 2
    assert answer.body["all"]["memory"]["total"] == 8 * 1024**3
    assert 0 < answer.body["all"]["cpu"]["percent"] < 100


async def test_unknown_paths_are_404_and_wrong_methods_405(cml: Any, address: str) -> None:
    assert (await cml.ask(address, "no_such_thing")).body["code"] == 404
    assert (await cml.ask(address, "system_information", method="POST")).body["code"] == 405
