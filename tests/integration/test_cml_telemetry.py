"""CML's telemetry on the wire: what proves that it is recorded (R3)."""

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.session import CmlSession, Credentials, always
from lcm.core.clock import SystemClock
from lcm.worker_controller.monitoring.telemetry_log import (
    activity_in_telemetry,
    is_recording,
    is_switched_on,
)
from lcm.worker_controller.monitoring.telemetry_reader import TELEMETRY_STATE_PATH, read_telemetry
from support.labs_over_tls import ADMIN, HOST, cml_over_tls
from support.patience import PATIENCE_SECONDS


@pytest.mark.parametrize(("opt_in", "is_on"), [(b"true", True), (b"false", False), (b"null", False)])
async def test_telemetry_without_an_entry_is_told_from_telemetry_that_is_off(
    opt_in: bytes, is_on: bool
) -> None:
    async with cml_over_tls(speed=1.0) as (_, port), CmlConnections(port) as connections:
        login = always(Credentials(ADMIN.username, ADMIN.password))
        session = CmlSession(connections, login, HOST, None, SystemClock())
        body = b'{"opt_in":%s}' % opt_in
        await session.request("PUT", TELEMETRY_STATE_PATH, body)
        events, telemetry = await read_telemetry(session, PATIENCE_SECONDS)
        # LCM's own requests are recorded where anything is.
        assert is_recording(telemetry.newest_at, now=SystemClock().now(), server_now=events.date) is (
            opt_in != b"false"
        )
        assert is_switched_on((await session.get(TELEMETRY_STATE_PATH)).body) is is_on


async def test_captures_and_wipes_of_people_are_activity() -> None:
    async with cml_over_tls(speed=1.0) as (site, port), CmlConnections(port) as connections:
        login = always(Credentials(ADMIN.username, ADMIN.password))
        session = CmlSession(connections, login, HOST, None, SystemClock())
        now = SystemClock().now().timestamp()
        for category in ("packet_capture", "wipe_node", "boot_node", "running_nodes"):
            site.server.telemetry.record(category, now, {"lab_id": "l-1", "user_id": "a-person"})
        events, telemetry = await read_telemetry(session, PATIENCE_SECONDS)
        found = activity_in_telemetry(
            telemetry.entries, own_user_id=session.user_id, now=SystemClock().now(), server_now=events.date
        )
        assert {"packet_capture", "wipe_node"} <= {event.category for event in found}
        assert "running_nodes" not in {event.category for event in found}
