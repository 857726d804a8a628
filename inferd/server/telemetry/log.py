"""The log: every event as one line, on stderr and in a file.

Lines are text on a terminal, JSON with a priority for journald, and JSON elsewhere and
in the file. Texts that look like secrets are redacted in all of them.
"""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import structlog

from inferd.config.choices import LogLevel
from inferd.server.telemetry.log_file import LogFile
from inferd.server.telemetry.log_format import (
    ConsoleFormat,
    as_journal,
    as_json,
    record_of,
)
from inferd.server.telemetry.log_tail import LogTail
from inferd.server.telemetry.log_throttle import LogQuota
from inferd.server.telemetry.redaction import Record
from inferd.service.log_writer import BackgroundWriter, FdWriter, LogLineWriter
from inferd.surfaces import SURFACES, Surface

Sink = Literal["stderr", "file"]
LineFormat = Callable[[Record], bytes]

COMPONENT: Final = "log"


class LogOutput:
    """Log sink with the format of its lines."""

    def __init__(
        self,
        writer: LogLineWriter,
        line_format: LineFormat,
        *,
        on_loss: Callable[[], None],
    ) -> None:
        self._name = str(writer)
        self.format = line_format
        self.others: list[LogOutput] = []
        """The other outputs, which log a failure of this one."""
        self._sink = BackgroundWriter(
            writer, report=self._lost, on_loss=on_loss, on_failure=self._failed
        )

    def write(self, record: Record) -> None:
        """Queue a record to be written."""
        if line := self.format(record):
            self._sink.write(line)

    def close(self) -> None:
        """Write the queued lines, for ``FLUSH_S`` at most."""
        self._sink.close()

    def _lost(self, n_lines: int) -> bytes:
        fields = {"lines": n_lines}
        return self.format(record_of(COMPONENT, "warning", "log.dropped", fields))

    def _failed(self, error: OSError) -> None:
        fields = {"sink": self._name, "reason": error.strerror}
        for other in self.others:
            other.write(record_of(COMPONENT, "warning", "log.failed", fields))


class Log:
    """The outputs of the log.

    Args:
        stderr: the output to stderr; ``None`` if stderr is closed.
        file: the output to a file, if there is one.
    """

    def __init__(self, stderr: LogOutput | None, file: LogOutput | None) -> None:
        self.outputs = [each for each in (stderr, file) if each is not None]
        self._stderr = stderr

    def log_start_failure(self, reason: str) -> bool:
        """Log why the daemon does not start, except to a stderr that people read.

        Returns:
            Whether stderr leads to journald, and got the record; else the caller prints
            the reason there.
        """
        is_journald = self._stderr is not None and self._stderr.format is as_journal
        record = record_of("daemon", "error", "daemon.failed", {"reason": reason})
        for output in self.outputs:
            if is_journald or output is not self._stderr:
                output.write(record)
        return is_journald


class RecordLogger:
    """Logger that structlog calls with finished records."""

    def __init__(self, outputs: Sequence[LogOutput | LogTail], component: str) -> None:
        self.component = component
        self._outputs = outputs

    def msg(self, record: Record) -> None:
        """Queue a record in all outputs, whatever its level."""
        for output in self._outputs:
            output.write(record)

    log = debug = info = warning = warn = error = critical = exception = fatal = msg


def finish(
    logger: RecordLogger, method: str, event: MutableMapping[str, object]
) -> tuple[tuple[Record], dict[str, object]]:
    """Make the record of an event; the last processor of structlog."""
    level = "error" if method == "exception" else method
    msg = str(event.pop("event", ""))
    return (record_of(logger.component, level, msg, event),), {}


class LibraryHandler(logging.Handler):
    """Handler that passes the log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record as an event."""
        structlog.get_logger(record.name).log(
            record.levelno, "library.message", text=record.getMessage()
        )


@contextmanager
def writing_log(
    level: LogLevel,
    file: LogFile | None = None,
    on_loss: Callable[[Sink], None] = lambda _: None,
    surfaces: Sequence[Surface] = SURFACES,
    tail: LogTail | None = None,
) -> Iterator[Log]:
    """Configure structlog for the daemon's process while inside.

    Args:
        level: the lowest level that is logged.
        file: the log file besides stderr.
        on_loss: called for every line that is lost, in any thread.
        surfaces: of the daemon; have the command that a terminal shows when it is ready.
        tail: keeps the newest lines.
    """
    log = Log(
        _stderr(surfaces, on_loss=partial(on_loss, "stderr")),
        None
        if file is None
        else LogOutput(file, as_json, on_loss=partial(on_loss, "file")),
    )
    for output in log.outputs:
        output.others += [each for each in log.outputs if each is not output]
    handler = LibraryHandler(logging.WARNING)
    with ExitStack() as after:
        for output in log.outputs:
            after.callback(output.close)
        after.callback(structlog.reset_defaults)
        _configure([*log.outputs, *([] if tail is None else [tail])])
        set_level(level)
        logging.getLogger().addHandler(handler)
        after.callback(logging.getLogger().removeHandler, handler)
        yield log


def set_level(level: LogLevel) -> None:
    """Set the lowest level that is logged, in the whole process."""
    number = getattr(logging, level.upper())
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))


def _configure(outputs: Sequence[LogOutput | LogTail]) -> None:
    quota = LogQuota()

    def limit(
        _: RecordLogger, __: str, event: MutableMapping[str, object]
    ) -> MutableMapping[str, object]:
        """Drop an event that is over its user's quota."""
        if quota.allows(event, time.monotonic()):
            return event
        raise structlog.DropEvent

    structlog.configure(
        processors=[limit, finish],
        logger_factory=lambda *names: RecordLogger(outputs, *names or ("",)),
        cache_logger_on_first_use=False,
    )


def _stderr(
    surfaces: Sequence[Surface], *, on_loss: Callable[[], None]
) -> LogOutput | None:
    if sys.stderr is None:  # the parent process has closed it
        return None
    fd = sys.stderr.fileno()
    line_format: LineFormat = as_json
    if sys.stderr.isatty():
        line_format = ConsoleFormat(
            colours=not os.environ.get("NO_COLOR"),
            program=_program(),
            surfaces=surfaces,
        )
    elif is_journal(fd, os.environ.get("JOURNAL_STREAM", "")):
        line_format = as_journal
    return LogOutput(FdWriter(fd), line_format, on_loss=on_loss)


def _program() -> str:
    """Return how a person on this terminal can call this program."""
    if shutil.which("inferd"):
        return "inferd"
    return sys.argv[0] if Path(sys.argv[0]).name == "inferd" else "python -m inferd"


def is_journal(fd: int, stream: str) -> bool:
    """Tell whether a descriptor is the stream to journald.

    Args:
        fd: the descriptor.
        stream: ``$JOURNAL_STREAM``: device and inode of the stream, in decimal.
    """
    info = os.fstat(fd)
    return stream == f"{info.st_dev}:{info.st_ino}"
