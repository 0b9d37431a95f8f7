"""CML's system API."""

from contextlib import suppress
from typing import Annotated

import msgspec

from lcm.cml.connection import CmlConnections
from lcm.domain.errors import NoCml
from lcm.domain.telemetry import MAX_TEXT
from lcm.domain.worker import SystemInfo
from lcm.rest.schemas import MAX_SYSTEM_INFO
from lcm.worker_controller.ports import CmlSystemInformation


class _SystemInformation(msgspec.Struct, frozen=True):
    version: str
    ready: bool


_Short = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] | int | float | bool | None


class CmlSystemSpiClient:
    """Reads the system information of CML servers."""

    def __init__(self, connections: CmlConnections) -> None:
        self._connections = connections

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        answer = await self._connections.get(host, "/api/v0/system_information", pinned_sha256)
        try:
            information = msgspec.json.decode(answer.body, type=_SystemInformation)
            more = _rest_of(answer.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NoCml(f"CML at {host} sent an invalid answer: {error}") from None
        return CmlSystemInformation(information.version, information.ready, answer.certificate_sha256, more)


def _rest_of(body: bytes) -> SystemInfo:
    """The fields besides version and readiness, those of future versions too, unless long or nested."""
    information = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    rest: SystemInfo = {}
    for name in sorted(information.keys() - set(_SystemInformation.__struct_fields__))[:MAX_SYSTEM_INFO]:
        with suppress(msgspec.ValidationError):
            rest[name] = msgspec.json.decode(information[name], type=_Short)
    return rest
