"""CML's system API."""

import msgspec

from lcm.cml.connection import CmlConnections
from lcm.domain.errors import Unreachable
from lcm.worker_controller.ports import CmlSystemInformation


class _SystemInformation(msgspec.Struct, frozen=True):
    version: str
    ready: bool


class CmlSystemSpiClient:
    """Asks CML servers about themselves."""

    def __init__(self, connections: CmlConnections) -> None:
        self._connections = connections

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        answer = await self._connections.get(host, "/api/v0/system_information", pinned_sha256)
        try:
            told = msgspec.json.decode(answer.body, type=_SystemInformation)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"CML at {host} does not make sense: {error}") from None
        return CmlSystemInformation(told.version, told.ready, answer.certificate_sha256)
