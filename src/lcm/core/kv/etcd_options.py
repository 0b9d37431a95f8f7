"""Where etcd is and how it is reached. Apart from its client, which takes long to import."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tls:
    """Certificates as PEM. Without a CA the system's are trusted; a client certificate is optional."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class EtcdOptions:
    """Where etcd is and how it is reached."""

    endpoints: tuple[str, ...]
    """`host:port`, one per member."""
    tls: Tls | None = None
    username: str | None = None
    password: str = field(default="", repr=False)
    identity_key: str = "/lcm/coordination-id"
    call_timeout_seconds: float = 1.8
    """For one call with all its repetitions; a little less than what callers wait."""
    silence_seconds: float = 60.0
    """A watch from which nothing was heard for this long is broken off."""
    page_size: int = 1000
    """Keys asked for at once; fewer if they do not fit into one answer of 4 MiB."""


def parse_endpoints(endpoints: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """`host:port` each, and whether TLS is asked for. Takes `host`, `host:port` and URLs of one scheme."""
    parsed, schemes = [], set()
    for endpoint in endpoints:
        if "@" in endpoint:  # addresses are shown in /health
            raise ValueError("an address has no login in it; say it with ETCD_USERNAME and ETCD_PASSWORD")
        scheme, separator, address = endpoint.strip().rpartition("://")
        host, colon, port = address.rstrip("/").rpartition(":")
        if not colon:
            host, port = port, "2379"
        if scheme not in ("", "http", "https") or not host or not port.isdigit():
            raise ValueError(f"{endpoint!r} is no address of an etcd; write host:port or https://host:port")
        schemes.add(scheme if separator else "http")
        parsed.append(f"{host}:{port}")
    if len(schemes) > 1:
        raise ValueError("some endpoints are http and some https; a cluster is one or the other")
    return tuple(parsed), schemes == {"https"}
