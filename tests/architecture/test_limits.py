"""The figures of the limits' page are those of the code."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from lcm.control_plane.access.guessing import (
    LOOKUPS_OF_GUESSERS,
    WRONG_BURST,
    WRONG_BURST_IN_ALL,
    WRONG_PER_SECOND_IN_ALL,
)
from lcm.control_plane.access.identity import (
    LINK_LIFETIME,
    MAX_LINKS_PER_PRINCIPAL,
    MAX_SESSIONS_PER_PRINCIPAL,
    MAX_STREAMS,
    MAX_STREAMS_PER_PRINCIPAL,
    SESSION_LIFETIME,
)
from lcm.control_plane.access.security_log import MAX_ENTRIES, MAX_REFUSALS
from lcm.control_plane.api.middleware import (
    BODY_TIMEOUT_SECONDS,
    MAX_BODY_BYTES,
    MAX_FLEET_BODY_BYTES,
    MAX_TOPOLOGY_BODY_BYTES,
)
from lcm.control_plane.api.public.sessions import ATTEMPT_SECONDS
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.control_plane.streaming.outbox import SUBSCRIBER_BYTES
from lcm.web.connections import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS
from lcm.web.server import HEADER_SECONDS, MAX_HEADER_BYTES, WRITE_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    page = re.sub(r"(\d),(\d)", r"\1\2", PAGE.read_text())
    rows: Mapping[str, Sequence[float]] = {
        "requests of a principal": [ControlPlaneSettings().api_requests_per_second],
        "wrong tokens, sessions and keys from an address": [WRONG_BURST],
        "wrong tokens, sessions and keys in all": [WRONG_BURST_IN_ALL, WRONG_PER_SECOND_IN_ALL],
        "look-ups of secrets": [LOOKUPS_OF_GUESSERS],
        "browser sessions of": [MAX_SESSIONS_PER_PRINCIPAL],
        "life of a browser session": [SESSION_LIFETIME / timedelta(hours=1)],
        "sign-in links of": [MAX_LINKS_PER_PRINCIPAL, LINK_LIFETIME / timedelta(minutes=1)],
        "an attempt to sign in": [ATTEMPT_SECONDS / 60],
        "event streams of": [MAX_STREAMS_PER_PRINCIPAL],
        "event streams in all": [MAX_STREAMS],
        "what waits for a slow reader": [SUBSCRIBER_BYTES / 1024],
        "connections of a process": [MAX_CONNECTIONS],
        "connections of an address": [MAX_CONNECTIONS_PER_ADDRESS],
        "TLS handshake": [HEADER_SECONDS],
        "head of a request": [MAX_HEADER_BYTES / 1024, HEADER_SECONDS],
        "body of a request": [
            *(size / 1024**2 for size in (MAX_BODY_BYTES, MAX_TOPOLOGY_BODY_BYTES, MAX_FLEET_BODY_BYTES)),
            BODY_TIMEOUT_SECONDS,
        ],
        "an answer that is not read": [WRITE_SECONDS],
        "security audit log": [MAX_ENTRIES, MAX_REFUSALS],
    }
    for row, figures in rows.items():
        [found] = re.findall(rf"^\| {row}[^|]*\|([^|]*)\|", page, re.MULTILINE)
        assert not {f"{figure:g}" for figure in figures} - set(re.findall(r"\d+", found)), found
