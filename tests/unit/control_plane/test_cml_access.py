"""How people reach the CML of a worker."""

import dataclasses

from msgspec.structs import replace

from lcm.domain.worker import Cml, WorkerInstance
from support.control_plane import ONE_REGION
from support.people import PublicDesk


async def desk_with(*, port: int, instance: WorkerInstance) -> PublicDesk:
    desk = await PublicDesk(dataclasses.replace(ONE_REGION, cml_port=port)).open()
    cml = Cml(is_ready=True, version="2.9.1", certificate_sha256="ab" * 32)
    await desk.records.workers.change("w1", lambda worker: replace(worker, instance=instance, cml=cml))
    return desk


async def test_the_answer_has_address_and_certificate_and_no_password() -> None:
    desk = await desk_with(port=443, instance=WorkerInstance(public_ip="203.0.113.7"))
    found = (await desk.viewer.get("/api/workers/w1/cml")).body
    assert (found["url"], found["certificate_sha256"]) == ("https://203.0.113.7", "ab" * 32)
    assert not [name for name in found if "password" in name]


async def test_another_port_and_a_long_address_are_written_as_addresses_are() -> None:
    desk = await desk_with(port=8443, instance=WorkerInstance(public_ip="2001:db8::7"))
    assert (await desk.viewer.get("/api/workers/w1/cml")).body["url"] == "https://[2001:db8::7]:8443"


async def test_a_cml_that_does_not_answer_yet_has_no_address_for_people() -> None:
    desk = await desk_with(port=443, instance=WorkerInstance())
    answer = await desk.viewer.get("/api/workers/w1/cml")
    assert (answer.status, answer.kind) == (409, "not-ready-yet")
