"""Large answers of EC2 are not parsed on the event loop. Needs real threads, so real time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.session import get_session

from lcm.worker_controller.adapters.off_loop import LARGE_BYTES, OffLoopParserFactory


@pytest.mark.parametrize(("instances", "where"), [(1, "MainThread"), (400, "parser")])
async def test_a_large_answer_is_parsed_in_a_thread(instances: int, where: str) -> None:
    one = (
        "<item><instancesSet><item><instanceId>i-1</instanceId><launchTime>2026-01-01T00:00:00Z"
        "</launchTime><privateIpAddress>10.0.0.1</privateIpAddress><subnetId>subnet-1</subnetId>"
        "</item></instancesSet></item>"
    )
    body = f"<Answer><reservationSet>{one * instances}</reservationSet></Answer>".encode()
    assert (len(body) >= LARGE_BYTES) is (where == "parser")
    threads: set[str] = set()

    def note_thread(value: str) -> str:
        threads.add(threading.current_thread().name.split("_")[0])
        return value

    with ThreadPoolExecutor(1, thread_name_prefix="parser") as pool:
        factory = OffLoopParserFactory(pool)
        factory.set_parser_defaults(timestamp_parser=note_thread)
        shape = get_session().get_service_model("ec2").operation_model("DescribeInstances").output_shape
        response = {"status_code": 200, "headers": {}, "body": body, "context": {}}
        parsed = await factory.create_parser("ec2").parse(response, shape)
    assert len(parsed["Reservations"]) == instances
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert threads == {where}
