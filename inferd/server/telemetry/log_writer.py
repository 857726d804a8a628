"""Writers of log lines, each in a thread of its own, so that a slow sink blocks nothing.

When more than ``LOG_QUEUE_LINES`` are queued, or a line cannot be written, it is lost and
counted. The count is logged as soon as the sink accepts lines again.
"""

import os
import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from inferd.limits.log import LOG_QUEUE_LINES

FLUSH_S: Final = 1.0
"""Seconds to write the queued lines at the end."""

RETRY_S: Final = 1.0
"""Seconds between two attempts to log the number of lost lines, without other lines."""

STDERR: Final = 2

FAILURE_REPORT_S: Final = 60.0
"""Seconds in which the failures of a sink that works now and then are reported once."""


class LogLineWriter(Protocol):
    """Blocking writer of log lines."""

    def write(self, line: bytes) -> None:
        """Write a line with its newline, after a newline if the last write was partial.

        Raises:
            OSError: the line was not written, or only in part.
        """

    def close(self) -> None:
        """Release its resources."""


class FdWriter:
    """Writer to a file descriptor that the caller opened and closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_torn = False

    def __str__(self) -> str:
        return "stderr" if self._fd == STDERR else f"descriptor {self._fd}"

    def write(self, line: bytes) -> None:
        """Write a line; block while a pipe or terminal is full.

        Raises:
            OSError: the line was not written, or only in part.
        """
        rest = memoryview(b"\n" + line if self._is_torn else line)
        n_bytes = len(rest)
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        finally:
            has_begun = self._is_torn or len(rest) < n_bytes
            self._is_torn = has_begun and bool(rest)

    def close(self) -> None:
        """Leave the descriptor open."""

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:  # another process made the pipe non-blocking
            writable = select.poll()
            writable.register(self._fd, select.POLLOUT)
            writable.poll()
            return 0


class BackgroundWriter:
    """Queue of log lines, and the thread that writes them.

    Args:
        writer: called in the thread only.
        report: makes the line with the number of lost lines.
        on_loss: called for each lost line, in any thread.
        on_failure: called when a writer that worked fails, at most once in
            ``FAILURE_REPORT_S`` seconds, in the thread.
    """

    def __init__(
        self,
        writer: LogLineWriter,
        *,
        report: Callable[[int], bytes],
        on_loss: Callable[[], None] = lambda: None,
        on_failure: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self._writer = writer
        self._report = report
        self._on_loss = on_loss
        self._on_failure = on_failure
        self._lines: queue.Queue[bytes | None] = queue.Queue(LOG_QUEUE_LINES)
        self._lock = threading.Lock()
        self._n_lost = 0
        self._is_failing = False
        self._quiet_until = time.monotonic()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a line with its newline; count it as lost if the queue is full."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._lose()

    def close(self) -> None:
        """Write the queued lines, for about ``FLUSH_S`` at most."""
        try:
            self._lines.put(None, timeout=FLUSH_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_S)

    # --- in its thread ------------------------------------------------------------

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            if not (self._try_report_losses() and self._try_write(line)) and line:
                self._lose()
        self._try_report_losses()
        self._writer.close()

    def _next(self) -> bytes | None:
        """Take the next line; an empty one if only losses are to be reported."""
        try:
            return self._lines.get(timeout=RETRY_S if self._n_lost else None)
        except queue.Empty:
            return b""

    def _try_report_losses(self) -> bool:
        with self._lock:
            n_lost, self._n_lost = self._n_lost, 0
        if not n_lost or self._try_write(self._report(n_lost)):
            return True
        with self._lock:
            self._n_lost += n_lost
        return False

    def _try_write(self, line: bytes) -> bool:
        if not line:
            return True
        try:
            self._writer.write(line)
        except OSError as error:
            self._report_failure(error)
            return False
        self._is_failing = False
        return True

    def _report_failure(self, error: OSError) -> None:
        has_worked, self._is_failing = not self._is_failing, True
        if has_worked and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + FAILURE_REPORT_S
            self._on_failure(error)

    def _lose(self) -> None:
        with self._lock:
            self._n_lost += 1
        self._on_loss()
