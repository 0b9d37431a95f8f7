"""CML's system API."""

from contextlib import suppress
from typing import Annotated

import msgspec

from lcm.cml.connection import CmlConnections
from lcm.domain.errors import Unreachable
from lcm.domain.telemetry import MAX_TEXT
from lcm.domain.worker import SystemInfo
from lcm.rest.schemas import MAX_SYSTEM_INFO
from lcm.worker_controller.ports import CmlSystemInformation


class _SystemInformation(msgspec.Struct, frozen=True):
    version: str
    ready: bool


_Short = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)] | int | float | bool | None


class CmlSystemSpiClient:
    """Asks CML servers about themselves."""

    def __init__(self, connections: CmlConnections) -> None:
        self._connections = connections

    async def get_system_information(self, host: str, pinned_sha256: str | None) -> CmlSystemInformation:
        answer = await self._connections.get(host, "/api/v0/system_information", pinned_sha256)
        try:
            told = msgspec.json.decode(answer.body, type=_SystemInformation)
            more = _rest_of(answer.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Unreachable(f"CML at {host} does not make sense: {error}") from None
        return CmlSystemInformation(told.version, told.ready, answer.certificate_sha256, more)


def _rest_of(body: bytes) -> SystemInfo:
    """What a version that is not known yet tells is kept as well, unless it is long or nested."""
    told = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    rest: SystemInfo = {}
    for name in sorted(told.keys() - set(_SystemInformation.__struct_fields__))[:MAX_SYSTEM_INFO]:
        with suppress(msgspec.ValidationError):
            rest[name] = msgspec.json.decode(told[name], type=_Short)
    return rest
