"""The log: lines to stderr by a thread of its own, so that a stalled sink stalls nobody.

On a terminal the lines are for people, elsewhere they are JSON for a journal. When more
than ``LOG_QUEUE_LINES`` wait, further ones are dropped and counted.
"""

import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import structlog

from inferd.limits import LOG_QUEUE_LINES

FLUSH_S = 1.0
"""Seconds that the last lines get at the end."""

Level = Literal["debug", "info", "warning", "error"]


class LineSink:
    """Writes lines to a file descriptor, never waiting for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(LOG_QUEUE_LINES)
        self._n_dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line, or drop it."""
        try:
            self._lines.put_nowait(line.encode("utf-8", "replace") + b"\n")
        except queue.Full:
            self._n_dropped += 1

    def close(self) -> None:
        """Write what is queued, as far as there is time."""
        try:
            self._lines.put(None, timeout=FLUSH_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_S)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            if self._n_dropped:
                dropped, self._n_dropped = self._n_dropped, 0
                self._write(b'{"event": "log.dropped", "lines": %d}\n' % dropped)

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            return  # a full disk or a closed pipe must not end a daemon


class SinkLogger:
    """What structlog calls with finished lines."""

    def __init__(self, sink: LineSink) -> None:
        self._write = sink.write

    def msg(self, message: str) -> None:
        """Queue a line, whatever its level."""
        self._write(message)

    log = debug = info = warning = warn = error = critical = exception = fatal = msg


class LibraryHandler(logging.Handler):
    """Gives structlog what libraries say through the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it as an event of its own."""
        structlog.get_logger(record.name).log(
            record.levelno, "library.message", text=record.getMessage()
        )


@contextmanager
def logging_to_stderr(level: Level) -> Iterator[None]:
    """Configure structlog for the daemon's process while inside."""
    sink = LineSink(sys.stderr.fileno())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="t"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            getattr(logging, level.upper())
        ),
        logger_factory=lambda *_: SinkLogger(sink),
        cache_logger_on_first_use=False,
    )
    handler = LibraryHandler(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        sink.close()
        structlog.reset_defaults()
