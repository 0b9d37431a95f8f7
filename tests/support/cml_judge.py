"""What is on the CML servers, by Cisco's own client: it knows nothing of LCM."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from support.patience import PATIENCE_SECONDS

CLIENT: Final[Any] = import_module("virl2_client")
"""Without types."""
GREETING_BYTES: Final = 4096


@dataclass(frozen=True)
class JudgedLab:
    """A lab with its nodes by label."""

    id: str
    title: str
    state: str
    nodes: Mapping[str, str]
    tags: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class CmlJudge:
    """An administrator at one CML server."""

    host: str
    client: Any

    def labs(self) -> dict[str, JudgedLab]:
        """Every lab, whoever owns it, by id."""
        return {lab.id: _judged(lab) for lab in self.client.all_labs(show_all=True)}

    def start_own_lab(self, title: str) -> JudgedLab:
        """A lab of a person, which runs."""
        lab = self.client.create_lab(title)
        lab.create_node("mine", "alpine", 0, 0)
        lab.wait_time = 0.05
        lab.start(wait=True)
        return _judged(lab)

    def greeting(self, port: int) -> str:
        """What the console behind a port shows to somebody who connects."""
        with socket.create_connection((self.host, port), PATIENCE_SECONDS) as connection:
            return connection.recv(GREETING_BYTES).decode()

    def is_open(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, port)) == 0


def _judged(lab: Any) -> JudgedLab:
    nodes = list(lab.nodes())
    return JudgedLab(
        lab.id,
        lab.title,
        lab.state(),
        {node.label: node.state for node in nodes},
        {node.label: tuple(node.tags()) for node in nodes},
    )


@contextmanager
def cml_judge(host: str, port: int, username: str, password: str) -> Iterator[CmlJudge]:
    client = CLIENT.ClientLibrary(f"https://{host}:{port}", username, password, ssl_verify=False)
    try:
        yield CmlJudge(host, client)
    finally:
        client._session.close()
