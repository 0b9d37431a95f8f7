"""What LCM answers, on the wire, without an LCM: for the client and the commands that stand on it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread, Timer
from typing import Any, Final

import msgspec

from lcm.rest.schemas import Problem
from support.patience import PATIENCE_SECONDS

PACE_SECONDS: Final = 0.05
"""Between two events of a busy stream."""
Pieces = Iterator[bytes]


def event(event_type: str, data: Any, event_id: str | None = None) -> bytes:
    """One event of the stream."""
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {event_type}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode()


@dataclass(frozen=True)
class Refusal:
    """A problem document."""

    status: int
    detail: str = "do this"


@dataclass
class CannedLcm:
    """Answers each request with the first of its answers, and goes on with the last one."""

    answers: dict[str, list[Any]] = field(default_factory=dict)
    """By method and path, such as `GET /api/workers`."""
    streams: list[Callable[[], Pieces] | Refusal] = field(default_factory=list)
    """What each connection to the event stream gets; the last one again and again."""
    requests: list[str] = field(default_factory=list)
    closes_unasked: bool = False
    """Whether it closes a connection after an answer that did not announce it, as a server does in time."""
    closed: Event = field(default_factory=Event)
    is_over: Event = field(default_factory=Event)

    def busy(self, opening: Sequence[bytes], live: bytes) -> Callable[[], Pieces]:
        """A stream that is never silent for long."""

        def pieces() -> Pieces:
            yield from opening
            while not self.is_over.wait(PACE_SECONDS):
                yield live

        return pieces

    def quiet(self, *opening: bytes) -> Callable[[], Pieces]:
        def pieces() -> Pieces:
            yield from opening
            self.is_over.wait()

        return pieces

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve it, and yield its address."""
        server = _server_of(self)
        server.daemon_threads = True
        serving = Thread(target=server.serve_forever, args=(PACE_SECONDS,))
        serving.start()
        patience = Timer(PATIENCE_SECONDS, self._give_up)
        patience.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            patience.cancel()
            self.is_over.set()
            server.shutdown()
            serving.join()
            server.server_close()

    def _give_up(self) -> None:
        """End a command that goes on for ever: its test then fails instead."""
        self.streams[:] = [Refusal(500, "the command did not end")]
        self.is_over.set()


def _server_of(canned: CannedLcm) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        def shutdown_request(self, request: Any) -> None:
            super().shutdown_request(request)
            canned.closed.set()

    return Server(("127.0.0.1", 0), _handler_of(canned))


def _handler_of(canned: CannedLcm) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            canned.requests.append(f"{self.command} {path}")
            if path == "/api/events/stream":
                self._stream(_next(canned.streams))
            else:
                missing = [Refusal(404, "there is no such thing")]
                self._send(_next(canned.answers.get(f"{self.command} {path}", missing)))

        def _send(self, answer: Any) -> None:
            status = 200
            if isinstance(answer, Refusal):
                status = answer.status
                problem = "urn:lcm:problem:canned"
                answer = Problem(type=problem, title="Canned", status=status, detail=answer.detail)
            body = msgspec.json.encode(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = canned.closes_unasked

        def _stream(self, stream: Callable[[], Pieces] | Refusal) -> None:
            if isinstance(stream, Refusal):
                self._send(stream)
                return
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            try:
                for piece in stream():
                    self.wfile.write(piece)
                    self.wfile.flush()
            except OSError:
                return  # the client has gone

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    return Handler


def _next(answers: list[Any]) -> Any:
    return answers.pop(0) if len(answers) > 1 else answers[0]
