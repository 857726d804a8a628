"""The log: every event as one line, on stderr and in a file.

On a terminal the lines are for people, to journald they have a priority, elsewhere and
in the file they are JSON. What looks like a secret is taken out of all of them.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, Literal

import structlog

from inferd.choices import Level
from inferd.server.lines import ForPeople, as_json, for_journal, record_of
from inferd.server.logfile import LogFile
from inferd.server.quota import LogQuota
from inferd.server.redaction import Record
from inferd.server.sink import Descriptor, LineSink, Writer

Sink = Literal["stderr", "file"]
Form = Callable[[Record], bytes]

COMPONENT: Final = "log"


class Outlet:
    """A sink and the form of its lines."""

    def __init__(
        self, writer: Writer, form: Form, *, on_loss: Callable[[], None]
    ) -> None:
        self._name = str(writer)
        self.form = form
        self.others: list[Outlet] = []
        """That are told when this one fails."""
        self._sink = LineSink(
            writer, report=self._lost, on_loss=on_loss, on_failure=self._failed
        )

    def write(self, record: Record) -> None:
        """Have a record written, without waiting for it."""
        self._sink.write(self.form(record))

    def close(self) -> None:
        """Write what waits, as far as there is time."""
        self._sink.close()

    def _lost(self, n_lines: int) -> bytes:
        fields = {"lines": n_lines}
        return self.form(record_of(COMPONENT, "warning", "log.dropped", fields))

    def _failed(self, error: OSError) -> None:
        fields = {"sink": self._name, "reason": error.strerror}
        for other in self.others:
            other.write(record_of(COMPONENT, "warning", "log.failed", fields))


class Log:
    """A log that is written.

    Args:
        stderr: of its outlets, unless somebody has closed it.
        file: of its outlets, if it has one.
    """

    def __init__(self, stderr: Outlet | None, file: Outlet | None) -> None:
        self.outlets = [each for each in (stderr, file) if each is not None]
        self._stderr = stderr

    def fail(self, reason: str) -> bool:
        """Write why the daemon does not start, where no words for a person say so.

        Returns:
            Whether stderr is such a place: it leads to journald.
        """
        is_told = self._stderr is not None and self._stderr.form is for_journal
        record = record_of("daemon", "error", "daemon.failed", {"reason": reason})
        for outlet in self.outlets:
            if is_told or outlet is not self._stderr:
                outlet.write(record)
        return is_told


class RecordLogger:
    """What structlog calls with finished records."""

    def __init__(self, outlets: list[Outlet], component: str) -> None:
        self.component = component
        self._outlets = outlets

    def msg(self, record: Record) -> None:
        """Have a record written wherever the log goes, whatever its level."""
        for outlet in self._outlets:
            outlet.write(record)

    log = debug = info = warning = warn = error = critical = exception = fatal = msg


def finish(
    logger: RecordLogger, method: str, event: MutableMapping[str, object]
) -> tuple[tuple[Record], dict[str, object]]:
    """Make the record of an event: structlog's last step."""
    level = "error" if method == "exception" else method
    msg = str(event.pop("event", ""))
    return (record_of(logger.component, level, msg, event),), {}


class LibraryHandler(logging.Handler):
    """Gives structlog what libraries say through the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log it as an event of its own."""
        structlog.get_logger(record.name).log(
            record.levelno, "library.message", text=record.getMessage()
        )


@contextmanager
def writing_log(
    level: Level,
    file: LogFile | None = None,
    on_loss: Callable[[Sink], None] = lambda _: None,
) -> Iterator[Log]:
    """Configure structlog for the daemon's process while inside.

    Args:
        level: events below it are left out.
        file: where lines go besides stderr.
        on_loss: called for every line that is lost, in any thread.
    """
    log = Log(
        _stderr(on_loss=partial(on_loss, "stderr")),
        None
        if file is None
        else Outlet(file, as_json, on_loss=partial(on_loss, "file")),
    )
    for outlet in log.outlets:
        outlet.others += [each for each in log.outlets if each is not outlet]
    handler = LibraryHandler(logging.WARNING)
    with ExitStack() as after:
        for outlet in log.outlets:
            after.callback(outlet.close)
        after.callback(structlog.reset_defaults)
        _configure(log.outlets)
        set_level(level)
        logging.getLogger().addHandler(handler)
        after.callback(logging.getLogger().removeHandler, handler)
        yield log


def set_level(level: Level) -> None:
    """Leave out events below a level from here on, in the whole process."""
    number = getattr(logging, level.upper())
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))


def _configure(outlets: list[Outlet]) -> None:
    quota = LogQuota()

    def limit(
        _: RecordLogger, __: str, event: MutableMapping[str, object]
    ) -> MutableMapping[str, object]:
        """Leave out what would be too much about one user."""
        if quota.allows(event, time.monotonic()):
            return event
        raise structlog.DropEvent

    structlog.configure(
        processors=[limit, finish],
        logger_factory=lambda *names: RecordLogger(outlets, *names or ("",)),
        cache_logger_on_first_use=False,
    )


def _stderr(*, on_loss: Callable[[], None]) -> Outlet | None:
    if sys.stderr is None:  # somebody has closed it
        return None
    fd = sys.stderr.fileno()
    form: Form = as_json
    if sys.stderr.isatty():
        form = ForPeople(colours=not os.environ.get("NO_COLOR"))
    elif is_journal(fd, os.environ.get("JOURNAL_STREAM", "")):
        form = for_journal
    return Outlet(Descriptor(fd), form, on_loss=on_loss)


def is_journal(fd: int, stream: str) -> bool:
    """Tell whether a descriptor is the stream to journald.

    Args:
        fd: the descriptor.
        stream: ``$JOURNAL_STREAM``: device and inode of that, in decimal.
    """
    info = os.fstat(fd)
    return stream == f"{info.st_dev}:{info.st_ino}"
