"""Parse large responses in a thread: botocore needs most of a second for a thousand instances.

Meanwhile leases must be renewed and requests answered, so the event loop hands such responses over.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from aiobotocore.parsers import AioResponseParserFactory
from botocore.parsers import ResponseParserFactory

LARGE_BYTES: Final = 64 * 1024
"""About 25 instances; parsing less takes less than handing it over is worth."""


class OffLoopParserFactory(AioResponseParserFactory):  # type: ignore[misc]
    """Registered as a session's `response_parser_factory`."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        super().__init__()
        self._thread = thread

    def create_parser(self, protocol_name: str) -> Any:
        in_loop = super().create_parser(protocol_name)
        plain = ResponseParserFactory()
        plain.set_parser_defaults(**self._defaults)
        return _Parser(in_loop, plain.create_parser(protocol_name), self._thread)


class _Parser:
    """Parses small responses and errors on the loop, large ones in the thread."""

    def __init__(self, in_loop: Any, plain: Any, thread: ThreadPoolExecutor) -> None:
        self._in_loop = in_loop
        self._plain = plain
        self._thread = thread

    async def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] >= 300 or len(response["body"]) < LARGE_BYTES:
            return await self._in_loop.parse(response, shape)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._plain.parse, response, shape)
