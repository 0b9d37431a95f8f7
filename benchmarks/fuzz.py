"""Whether a control plane stays whole under random requests and bytes: `make fuzz [REQUESTS=100000]`.

A control plane in a process of its own, with 256 descriptors and the settings that are shipped, gets requests
that schemathesis generates from the OpenAPI document, valid and invalid ones, and bytes that are hardly HTTP.
Each is sent without a token, with a wrong one and with every kind of valid one, while another address tries
to hold more connections than one may have. Meanwhile a probe asks for `/health` on a new connection each
time, and an operator for the workers. Everything stays on loopback.

It fails on a 5xx, on success without a token, on a `/health` or an operator's request that fails, and if the
operator's p99 is ten times that before; for a p99 that says something it takes some ten thousand requests.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import schemathesis
import uvloop
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core import NotSet
from schemathesis.core.result import Ok

from lcm.control_plane.api.middleware import OPEN_PATHS, OPEN_PREFIXES, SESSION
from lcm.core.timeouts import timeout
from report import percentile, report

ROOT = Path(__file__).parents[1]
DESCRIPTORS = 256
RAW_SHARE = 0.2
FUZZER, HOLDER = "127.0.0.2", "127.0.0.3"
SENDERS = 24
HELD = 64
"""More than the 48 connections that an address may have with so few descriptors."""
QUIET_PROBES = 500
PAUSE_SECONDS = 0.02
SILENCE_SECONDS = 0.3
"""After so long without a byte an answer is taken for complete."""
ANSWER_SECONDS = 10.0
ANSWER_BYTES = 256 * 1024
GOAL_RATIO = 10.0
SHOWN = 5

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
REQUEST_LINE = re.compile(rb"([A-Z]+) +([^ \r\n]*)")
OWN_HEADERS = {"authorization", "x-api-key", "x-lcm-service", "x-lcm-epoch", "cookie", "host", "connection"}
"""What the caller adds, or the framing of the body."""
FRAMING = {"content-length", "transfer-encoding"}


@dataclass(frozen=True)
class Shot:
    """One request as bytes; `{caller}` marks where the headers of the caller go."""

    content: bytes
    is_raw: bool


CALLER = b"{caller}"
CALLERS = 6
T = TypeVar("T")


# What is sent.


def generated(count: int, number: int) -> list[Shot]:
    """Requests by the OpenAPI document, as many valid as invalid ones of each operation."""
    document = schemathesis.openapi.from_path(ROOT / "docs" / "reference" / "openapi.json")
    operations = [each.ok() for each in document.get_all_operations() if isinstance(each, Ok)]
    each = max(1, count // len(operations) // len(GenerationMode))
    shots: list[Shot] = []
    for operation in operations:
        for mode in GenerationMode:
            shots += cases_of(operation, mode, each, number)
    return shots


def cases_of(operation: Any, mode: GenerationMode, count: int, number: int) -> list[Shot]:
    """Requests of one operation; none where nothing in it can be invalid."""
    shots: list[Shot] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        shots.append(Shot(on_the_wire(case), is_raw=False))

    with suppress(Unsatisfiable):
        collect()
    return shots[:count]


def on_the_wire(case: Any) -> bytes:
    """The request as it is sent, whatever is in it."""
    target = quote(case.formatted_path, safe="/%:@!$&'()*+,;=~-._", errors="surrogatepass")
    if case.query:
        target += "?" + urlencode(dict(case.query), doseq=True, errors="surrogatepass")
    body = b"" if isinstance(case.body, NotSet) else json.dumps(case.body, default=str).encode()
    headers = {name: str(value) for name, value in (case.headers or {}).items()}
    lines = [
        f"{name}: {value}".encode("utf-8", "surrogatepass")
        for name, value in {"Content-Type": "application/json", **headers}.items()
        if name.lower() not in OWN_HEADERS | FRAMING
    ]
    lines += [b"Host: 127.0.0.1", b"Connection: close", b"Content-Length: %d" % len(body), CALLER]
    return b"\r\n".join([f"{case.method.upper()} {target} HTTP/1.1".encode(), *lines, b"", body])


SEEDS = tuple(
    text.replace("\n", "\r\n").encode()
    for text in (
        "GET /api/workers?limit=5 HTTP/1.1\nHost: 127.0.0.1\n{caller}\n\n",
        "GET /api/workers/{%zz}/../../x HTTP/1.1\nHost: 127.0.0.1\n{caller}\nIf-Match: *\n\n",
        "POST /api/workers HTTP/1.1\nHost: 127.0.0.1\n{caller}\nContent-Type: application/json\n"
        'Content-Length: 43\n\n{"name":"fuzzed","template_name":"unknown"}',
        "POST /api/plan HTTP/1.1\nHost: 127.0.0.1\n{caller}\nTransfer-Encoding: chunked\n\n2\n{}\n0\n\n",
        'PUT /api/settings/license HTTP/1.1\nHost: 127.0.0.1\n{caller}\nContent-Length: 9\n\n{"a":[[[[',
        "GET /api/labs HTTP/1.1\nHost: 127.0.0.1\n{caller}\n\nGET /api/tokens HTTP/1.1\nHost: x\n\n",
        "GET /api/internal/workers HTTP/1.1\nHost: 127.0.0.1\n{caller}\nRange: bytes=0-,0-\nUpgrade: h2c\n\n",
    )
)
PIECES = (
    b"\0", b"\n", b"\r\n\r\n", b"\xff\xfe", b"%00", b"%2e%2e/", b" ", b":", b"\x1b[2J", b"\xed\xa0\x80",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n", b"Host: evil.example\r\n", b"HTTP/9.9",
    b"A" * 70_000, b"[" * 5_000, b"9" * 400, CALLER,
)  # fmt: skip


def raw(count: int, chance: Random) -> Iterator[Shot]:
    """Requests with a few pieces changed, and noise."""
    for _ in range(count):
        content = bytearray(chance.choice(SEEDS) if chance.random() < 0.95 else chance.randbytes(200))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(content) + 1)
            match chance.randrange(4):
                case 0:
                    content[at:at] = chance.choice(PIECES)
                case 1:
                    del content[at : at + chance.randrange(1, 30)]
                case 2:
                    content[at : at + 1] = chance.randbytes(1)
                case _:
                    content[at:at] = content[: chance.randrange(len(content) + 1)]
        yield Shot(bytes(content[:200_000]), is_raw=True)


def shots_of(requests: int, callers: int) -> list[Shot]:
    """So many that each caller sends each; the same ones in every run."""
    raw_count = int(requests * RAW_SHARE) // callers
    shots = [*raw(raw_count, Random(1)), *generated(requests // callers - raw_count, 1)]
    Random(2).shuffle(shots)
    # Where an operation has too few, others are sent again.
    return [shots[number % len(shots)] for number in range(-(-requests // callers))]


# Sending it.


@dataclass(frozen=True)
class Caller:
    """Who sends: the headers, of which a wrong token is another one each time."""

    name: str
    headers: str

    def lines(self, chance: Random) -> bytes:
        return self.headers.format(wrong=chance.randbytes(24).hex()).encode()

    @property
    def is_known(self) -> bool:
        return self.name not in ("nobody", "guesser")


def callers_of(keys: dict[str, str]) -> list[Caller]:
    people = [Caller(role, f"Authorization: Bearer {keys[role]}") for role in ("viewer", "operator", "admin")]
    service = f"X-API-Key: {keys['controller']}\r\nX-LCM-Service: worker-controller\r\nX-LCM-Epoch: 1"
    wrong = Caller("guesser", "Authorization: Bearer lcm_{wrong}\r\nX-API-Key: {wrong}")
    return [Caller("nobody", "X-Nobody: 1"), wrong, *people, Caller("controller", service)]


@dataclass
class Outcome:
    """What came of it."""

    statuses: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    unanswered: int = 0
    held: int = 0
    server_errors: list[str] = field(default_factory=list)
    let_in: list[str] = field(default_factory=list)

    def note(self, shot: Shot, caller: Caller, content: bytes, answer: bytes) -> None:
        statuses = [int(status) for status in STATUS.findall(answer)]
        self.unanswered += not statuses and not shot.is_raw
        self.statuses.update(f"{status // 100}xx" if status != 429 else "429" for status in statuses)
        said = f"{caller.name}: {shot.content[:300]!r} -> {answer[:300]!r}"
        if any(status >= 500 for status in statuses):
            self.server_errors.append(said)
        is_success = any(200 <= status < 300 for status in statuses)
        if is_success and not caller.is_known and not asks_for_open_path(content):
            self.let_in.append(said)


def asks_for_open_path(content: bytes) -> bool:
    """Whether one of the requests in these bytes is for something that needs no token."""
    return any(is_open(method.decode(), target) for method, target in REQUEST_LINE.findall(content))


def is_open(method: str, target: bytes) -> bool:
    path = urlsplit(target.decode("latin-1")).path
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES) or (method, path) in SESSION


async def send_all(shots: Sequence[Shot], callers: Sequence[Caller], port: int) -> Outcome:
    outcome = Outcome()
    waiting = iter((shot, caller) for shot in shots for caller in callers)
    async with asyncio.TaskGroup() as tasks:
        holders = [tasks.create_task(hold(outcome, port, number)) for number in range(HELD)]
        async with asyncio.TaskGroup() as senders:
            for number in range(SENDERS):
                senders.create_task(send_each(outcome, waiting, port, Random(number)))
        for holder in holders:
            holder.cancel()
    return outcome


async def send_each(
    outcome: Outcome, waiting: Iterator[tuple[Shot, Caller]], port: int, chance: Random
) -> None:
    for shot, caller in waiting:
        content = shot.content.replace(CALLER, caller.lines(chance), 1)
        outcome.sent += 1
        outcome.note(shot, caller, content, await answer_to(content, port, is_raw=shot.is_raw))


async def answer_to(content: bytes, port: int, *, is_raw: bool) -> bytes:
    """Everything that is answered until the connection ends, or as much as a stream says at first."""
    async with connection(port, FUZZER) as (reader, writer):
        answer = b""
        with suppress(ConnectionError):
            writer.write(content)
            while len(answer) < ANSWER_BYTES:
                patience = SILENCE_SECONDS if is_raw or STATUS.match(answer) else ANSWER_SECONDS
                part = await part_of(reader, patience)
                if not part:
                    break
                answer += part
        return answer


async def part_of(reader: asyncio.StreamReader, seconds: float) -> bytes:
    try:
        async with timeout(seconds):
            return await reader.read(65_536)
    except TimeoutError:
        return b""


async def hold(outcome: Outcome, port: int, number: int) -> None:
    """Keep a connection without ever finishing a request, or without ever reading the answer."""
    begin = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"\r\n" if number % 2 else b"X-Slow: ")
    while True:
        async with connection(port, HOLDER) as (reader, writer):
            with suppress(ConnectionError):
                writer.write(begin)
                outcome.held += 1
                if number % 2:
                    await asyncio.sleep(ANSWER_SECONDS)
                else:
                    await reader.read()
        await asyncio.sleep(SILENCE_SECONDS)


@asynccontextmanager
async def connection(
    port: int, address: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def fuzz(shots: Sequence[Shot], keys: dict[str, str], port: int, told: Connection) -> None:
    """In a process of its own that yields to the others: the CPU of who attacks is not that of the host."""
    os.nice(10)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told.send(runner.run(send_all(shots, callers_of(keys), port)))


# The control plane and who watches it.


@contextmanager
def control_plane(folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`lcm control-plane` that may have no more descriptors; yields its port."""
    command = [sys.executable, "-m", "lcm", "control-plane", "--port", "0", "--json", "--log-level", "ERROR"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(folder)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
        )
        assert process.stdout is not None
        with process, process.stdout as said:
            try:
                yield json.loads(said.readline())["port"], process
            finally:
                process.terminate()


@dataclass
class Watch:
    """How `/health` and an operator fare."""

    pid: int
    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    health_failures: list[str] = field(default_factory=list)
    health_checks: int = 0
    most_descriptors: int = 0


async def watch(url: str, key: str, pid: int, is_over: asyncio.Event) -> Watch:
    """Ask until it is over, health on a new connection each time."""
    seen = Watch(pid)
    headers, once = {"Authorization": f"Bearer {key}"}, aiohttp.TCPConnector(force_close=True)
    patience = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with (
        aiohttp.ClientSession(url, headers=headers, timeout=patience) as operator,
        aiohttp.ClientSession(url, connector=once, timeout=patience) as kubelet,
    ):
        while not is_over.is_set():
            began = time.perf_counter()
            await ask(operator, "/api/workers", seen.failures)
            seen.waits.append(time.perf_counter() - began)
            if len(seen.waits) % 5 == 0:
                seen.health_checks += 1
                await ask(kubelet, "/health", seen.health_failures)
                seen.most_descriptors = max(seen.most_descriptors, open_descriptors(pid))
            await asyncio.sleep(PAUSE_SECONDS)
    return seen


def open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def ask(session: aiohttp.ClientSession, path: str, failures: list[str]) -> None:
    try:
        async with session.get(path) as answer:
            await answer.read()
            if answer.status != 200:
                failures.append(f"{path}: {answer.status}")
    except (aiohttp.ClientError, TimeoutError) as error:
        failures.append(f"{path}: {error!r}")


async def watched(url: str, key: str, pid: int, until: Awaitable[T]) -> tuple[Watch, T]:
    """Watch until this is done; return its result, too."""
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(url, key, pid, is_over))
        result = await until
        is_over.set()
    return watching.result(), result


async def operator_of_its_own(url: str, admin: str) -> str:
    """A token whose rate no fuzzing caller shares."""
    headers = {"Authorization": f"Bearer {admin}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as session,
        session.post("/api/tokens", json={"name": "watching", "role": "operator"}) as answer,
    ):
        token: str = (await answer.json())["token"]
        return token


@dataclass(frozen=True)
class Run:
    """Before, and while it is fuzzed."""

    quiet: Watch
    loud: Watch
    outcome: Outcome
    seconds: float

    def table(self) -> list[tuple[str, str]]:
        outcome, loud = self.outcome, self.loud
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(outcome.statuses.items()))
        return [
            ("requests", f"{outcome.sent:,} in {self.seconds:.0f} s"),
            ("answers", counts),
            ("generated requests closed without an answer", f"{outcome.unanswered:,}"),
            ("connections of who never finishes or never reads", f"{outcome.held:,}"),
            ("open descriptors at most", f"{loud.most_descriptors} of {DESCRIPTORS}"),
            ("/health", f"{len(loud.health_failures)} of {loud.health_checks:,} failed"),
            ("operator", f"{len(loud.failures)} of {len(loud.waits):,} failed"),
            ("operator's p99 before", f"{percentile(self.quiet.waits, 99) * 1e3:.1f} ms"),
            ("operator's p99 meanwhile", f"{percentile(loud.waits, 99) * 1e3:.1f} ms"),
        ]

    def figures(self) -> dict[str, float]:
        outcome, loud = self.outcome, self.loud
        return {
            "requests": outcome.sent,
            "5xx": len(outcome.server_errors),
            "2xx without a token": len(outcome.let_in),
            "unanswered": outcome.unanswered,
            "health failures": len(loud.health_failures),
            "operator failures": len(loud.failures),
            "open descriptors at most": loud.most_descriptors,
            "operator p99 before ms": percentile(self.quiet.waits, 99) * 1e3,
            "operator p99 meanwhile ms": percentile(loud.waits, 99) * 1e3,
        }

    def faults(self) -> list[str]:
        """What must not be, a few of each kind."""
        kinds = (
            self.outcome.server_errors,
            self.outcome.let_in,
            self.loud.health_failures,
            self.loud.failures,
        )
        return [fault for kind in kinds for fault in kind[:SHOWN]]


async def run(shots: Sequence[Shot], folder: Path) -> Run:
    with control_plane(folder) as (port, process):
        url = f"http://127.0.0.1:{port}"
        keys = json.loads((folder / "keys.json").read_text())
        key = await operator_of_its_own(url, keys["admin"])
        quiet, _ = await watched(url, key, process.pid, asyncio.sleep(QUIET_PROBES * PAUSE_SECONDS))
        started = multiprocessing.get_context("spawn")
        heard, told = started.Pipe(duplex=False)
        fuzzer = started.Process(target=fuzz, args=(shots, keys, port, told), daemon=True)
        began = time.perf_counter()
        fuzzer.start()
        told.close()  # only the fuzzer has it: if it dies, nothing waits for its word
        heard_of = asyncio.get_running_loop().run_in_executor(None, heard.recv)
        loud, outcome = await watched(url, key, process.pid, heard_of)
        seconds = time.perf_counter() - began
        assert process.poll() is None, "the control plane has ended"
    return Run(quiet, loud, outcome, seconds)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100_000)
    shots = shots_of(parser.parse_known_args()[0].requests, CALLERS)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        found = loop.run(run(shots, Path(folder)))
    figures = found.figures()
    ratio = figures["operator p99 meanwhile ms"] / figures["operator p99 before ms"]
    for fault in found.faults():
        print(fault, file=sys.stderr)
    report("fuzz", found.table(), {"operator's p99 meanwhile over before": ratio}, figures)
    return 1 if found.faults() or ratio >= GOAL_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
