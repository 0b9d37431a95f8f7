"""Secrets logged on purpose, through the logging that processes configure, and what of them is written."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import structlog

from lcm.core.telemetry import LogFormat, configure_logging
from support.canaries import forms


class Log:
    """What one process writes to its standard error."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines_with(self, secret: str) -> str:
        """As the secret gets into a log by mistake: in words, fields, a traceback, the words of a library."""
        start, words = self.stream.tell(), f"login with {secret}"
        log = structlog.get_logger("lcm.mistake")
        log.info(words, password=secret, headers={"X-API-Key": secret})
        try:
            raise ValueError(f"GET https://admin:{secret}@10.0.0.1/")
        except ValueError:
            log.exception("it failed")
            logging.getLogger("a.library").exception("refused %s", secret)
        return self.stream.getvalue()[start:]

    def shows(self, secret: str) -> list[str]:
        """How the secret can be read there; empty if it is masked everywhere."""
        lines = self.lines_with(secret).encode()
        assert lines.count(b"\n") > 4, "nothing was written"
        return sorted({how for how, form in forms(secret) if how != "its beginning" and form in lines})


@contextmanager
def real_logging(log_format: LogFormat) -> Iterator[Log]:
    """As `lcm` configures it for every process, at its most verbose."""
    root, before, log = logging.getLogger(), structlog.get_config(), Log()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    with redirect_stderr(log.stream):
        configure_logging(log_format, "DEBUG")
    try:
        yield log
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**before)
