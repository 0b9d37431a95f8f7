"""Which functions of `src/lcm` a click passes on its way to EC2, and how often it crosses a border.

A function is on the way if it is entered between the request and the call to EC2, and leads there: what a
commit sets off besides its publication (caches, browsers, other control planes) does not. Not counted are:

- functions of one statement, lambdas, comprehensions, properties and constructors;
- clock, ids, timeouts, health, telemetry, tracing, the supervision of loops, the log of commits;
- `web/`: the HTTP server, in front of every request;
- codecs: records to bytes and back, validators of fields, the parser of EC2's XML;
- the inside of the store and of the coordination store: a port's methods count, what is behind them does not,
  nor the security log, which stands before the store;
- what runs beside the way: other tasks, the reports of live connections, the resource scheduler, the
  publisher's other duties, housekeeping of the debounce.

`benchmarks/ways.py` traces `lcm up`, tests/unit/worker_controller/test_ways.py the fleet in memory.
"""

import ast
import asyncio
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import lcm

SRC = f"{Path(lcm.__file__).parent}/"

PLUMBING = re.compile(
    r"core/(clock|ids|chance|timeouts|health|telemetry|tracing|hosted_service)\.py|web/|.*/commit_log\.py"
)
CODECS = re.compile(
    r".*(off_loop|forward_compat|later_fields|worker_forms|encoding|sse_wire)\.py|.*:_(decode|read|is_host_name)$"
)
INSIDE = re.compile(r"(core/kv|control_plane/store)/.*([:.]_|<locals>)")
BESIDE = re.compile(
    r"supervise|Election\.|LeaderElected\w+\.run|LiveReporter\.|\w*Registry\.|WorkQueue\.release_due"
)
DUTIES = re.compile(
    r".*(settled_labs|presence|security_log|redaction)\.py|.*\._(drop_keys_of_purged|forget_quiet_keys)$"
)
NOTIFIERS = {"_notify_listeners", "_tell"}
"""They call the listeners of a commit; the second until 91fd182."""
LEADS_ON = re.compile(r".*publisher\.py")
REPORTS = re.compile(
    r".*(report_live|internal/telemetry|routes/live|picows_websocket)\.py|worker_controller/monitoring/"
)
SCHEDULER = re.compile(r"resource_scheduler/|control_plane/(api/internal|queries)/(lablet|scheduling)")
SETUP = {"__init__", "__post_init__", "__aenter__", "__aexit__", "__enter__", "__exit__"}


@dataclass(frozen=True)
class Entry:
    """A function is entered, or goes on after a wait."""

    code: CodeType
    task: asyncio.Task[Any] | None
    listener: str = ""
    """The listener of a commit in which it happens."""

    @property
    def work(self) -> str:
        """The coroutine of the task that it runs in."""
        code = getattr(self.task.get_coro(), "cr_code", None) if self.task else None
        return code.co_qualname if code else ""

    @property
    def name(self) -> str:
        return _name_of(self.code)


@dataclass
class Way:
    """From a request to the call of EC2 that it leads to."""

    to: str
    entries: list[Entry] = field(default_factory=list)

    def functions(self) -> list[str]:
        """Those on the way, in the order in which they were first entered."""
        entered = {entry.name: entry for entry in self._until_arrival()}
        return [name for name, entry in entered.items() if is_counted(entry)]

    @property
    def has_arrived(self) -> bool:
        return any(entry.name.endswith(self.to) for entry in self.entries)

    def counts(self) -> Mapping[str, int]:
        names = [entry.name for entry in self._until_arrival()]
        functions = self.functions()
        return {
            "functions": len(functions),
            "files": len({name.partition(":")[0] for name in functions}),
            "functions of any kind": len(set(names)),
            "HTTP requests": len(self._requests()),
            "commits": _commits(names),
            "EC2 calls": 1 + sum(name.endswith(":TokenBucket.accepted") for name in names),
        }

    def _requests(self) -> set[asyncio.Task[Any]]:
        handlers = {entry.task for entry in self._until_arrival() if entry.work.endswith(".run_asgi")}
        return {task for task in handlers if task}

    def _until_arrival(self) -> Iterator[Entry]:
        others = {entry.task for entry in self.entries if entry.task and SCHEDULER.match(entry.name)}
        for entry in self.entries:
            if entry.task not in others:
                yield entry
            if entry.name.endswith(self.to):
                return
        raise AssertionError(f"{self.to} was not called")


def _commits(names: Sequence[str]) -> int:
    """Writes to SQLite; an audited one consists of the change and its entry in the log."""
    alone, audited = (
        sum(bool(re.search(rf"SqliteStore\.({made})\.<locals>\.operation$", name)) for name in names)
        for made in ("insert|replace|_insertion|_replacement", "commit")
    )
    return alone - audited


def common(ways: Sequence[Way]) -> list[str]:
    """The functions on all of the ways: what only one of them passed was beside it."""
    others = [set(way.functions()) for way in ways]
    return [name for name in ways[0].functions() if all(name in other for other in others)]


def is_counted(entry: Entry) -> bool:
    name = entry.name
    plain = name.rpartition(".")[2]
    return not (
        plain in SETUP
        or plain.startswith("<")
        or BESIDE.match(entry.work)
        or (entry.listener and not LEADS_ON.match(entry.listener))
        or any(pattern.match(name) for pattern in (PLUMBING, CODECS, INSIDE, REPORTS, DUTIES))
        or _is_short(entry.code.co_filename, entry.code.co_firstlineno)
    )


def _is_short(path: str, line: int) -> bool:
    """Return whether it is a property, or a function of one statement that waits for nothing."""
    function = _functions(path).get(line)
    if function is None:
        return False
    names = {getattr(at, "id", getattr(at, "attr", "")) for at in function.decorator_list}
    if names & {"property", "cached_property"}:
        return True
    statements = function.body[ast.get_docstring(function) is not None :]
    return len(statements) == 1 and isinstance(function, ast.FunctionDef) and not _is_block(statements[0])


def _is_block(statement: ast.stmt) -> bool:
    return not isinstance(statement, ast.Return | ast.Expr)


@cache
def _functions(path: str) -> Mapping[int, ast.FunctionDef | ast.AsyncFunctionDef]:
    """By first line, which is that of the first decorator."""
    found = [
        node
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {min([node.lineno, *(at.lineno for at in node.decorator_list)]): node for node in found}


class Tracer:
    """Records every function of `src/lcm` that is entered while a way is open."""

    def __init__(self) -> None:
        self._way: Way | None = None

    def __enter__(self) -> Self:
        """Begin before the threads that are to be traced start."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def recording(self, way: Way) -> Iterator[Way]:
        self._way = way
        yield way
        self._way = None

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if self._way is not None and event == "call" and frame.f_code.co_filename.startswith(SRC):
            self._way.entries.append(Entry(frame.f_code, _task(), _listener_around(frame)))


def _name_of(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(SRC)}:{code.co_qualname}"


def _listener_around(frame: FrameType) -> str:
    """The listener of a commit that this call is part of; empty if it is part of none."""
    while (caller := frame.f_back) is not None:
        if caller.f_code.co_name in NOTIFIERS:
            return _name_of(frame.f_code)
        frame = caller
    return ""


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
