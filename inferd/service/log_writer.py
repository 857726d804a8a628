"""Writers of log lines, each in a thread of its own, so that a slow sink blocks nothing.

A thread writes the first line at once, then waits for ``LOG_PAUSE_S``, and writes all lines
that were queued meanwhile together: a thread that runs takes Python's lock from the event
loop, whether it writes one line or a hundred.

When more than ``LOG_QUEUE_LINES`` are queued, or a line cannot be written, it is lost and
counted. The count is logged as soon as the sink accepts lines again.
"""

import os
import queue
import select
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

from inferd.limits.log import LOG_BATCH_BYTES, LOG_PAUSE_S, LOG_QUEUE_LINES

FLUSH_S: Final = 1.0
"""Seconds to write the queued lines at the end."""

RETRY_S: Final = 1.0
"""Seconds between two attempts to log the number of lost lines, without other lines."""

STDERR: Final = 2

FAILURE_REPORT_S: Final = 60.0
"""Seconds in which the failures of a sink that works now and then are reported once."""


class LogLineWriter(Protocol):
    """Blocking writer of log lines."""

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines, each with its newline, after a newline if the last write was partial.

        Args:
            lines: one or more.

        Returns:
            How many of the first lines were written, at least one. The others were not, or
            only in part; they may be written again.

        Raises:
            OSError: the first line was not written, or only in part.
        """

    def close(self) -> None:
        """Release its resources."""


def n_within(lines: Sequence[bytes], n_bytes: int) -> int:
    """Count how many of the first lines are whole within so many bytes."""
    return bisect_right([*accumulate(map(len, lines))], n_bytes)


class FdWriter:
    """Writer to a file descriptor that the caller opened and closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_torn = False

    def __str__(self) -> str:
        return "stderr" if self._fd == STDERR else f"descriptor {self._fd}"

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines; block while a pipe or terminal is full.

        Returns:
            How many of them were written before an error.

        Raises:
            OSError: the first line was not written, or only in part.
        """
        start = b"\n" if self._is_torn else b""
        data = memoryview(start + b"".join(lines))
        n_bytes = 0
        try:
            while n_bytes < len(data):
                n_bytes += self._write_some(data[n_bytes:])
        except OSError:
            n_lines = n_within(lines, n_bytes - len(start))
            n_whole = len(start) + sum(map(len, lines[:n_lines]))
            self._is_torn = n_bytes != n_whole
            if not n_lines:
                raise
            return n_lines
        self._is_torn = False
        return len(lines)

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
        self._is_over = False
        self._is_closing = threading.Event()
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
        self._is_closing.set()
        try:
            self._lines.put(None, timeout=FLUSH_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_S)

    # --- in its thread ------------------------------------------------------------

    def _write_all(self) -> None:
        while not self._is_over:
            lines = self._take()
            self._write_batch(lines)
            if sum(map(len, lines)) < LOG_BATCH_BYTES:
                self._is_closing.wait(LOG_PAUSE_S)
        self._try_report_losses()
        self._writer.close()

    def _take(self) -> list[bytes]:
        """Wait for a line, and take what is queued; nothing if only losses are to be reported."""
        lines: list[bytes] = []
        n_bytes = 0
        try:
            line = self._lines.get(timeout=RETRY_S if self._n_lost else None)
            while line is not None:
                lines.append(line)
                n_bytes += len(line)
                if n_bytes >= LOG_BATCH_BYTES:
                    return lines
                line = self._lines.get_nowait()
        except queue.Empty:
            return lines
        self._is_over = True
        return lines

    def _write_batch(self, lines: Sequence[bytes]) -> None:
        """Write lines, and lose those that the sink fails to take."""
        if not lines:
            self._try_report_losses()
        while lines:
            n_written = self._try_write(lines) if self._try_report_losses() else 0
            if not n_written:
                self._lose()
            lines = lines[n_written or 1 :]

    def _try_report_losses(self) -> bool:
        with self._lock:
            n_lost, self._n_lost = self._n_lost, 0
        if not n_lost or self._try_write([self._report(n_lost)]):
            return True
        with self._lock:
            self._n_lost += n_lost
        return False

    def _try_write(self, lines: Sequence[bytes]) -> int:
        try:
            n_written = self._writer.write(lines)
        except OSError as error:
            self._report_failure(error)
            return 0
        self._is_failing = False
        return n_written

    def _report_failure(self, error: OSError) -> None:
        has_worked, self._is_failing = not self._is_failing, True
        if has_worked and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + FAILURE_REPORT_S
            self._on_failure(error)

    def _lose(self) -> None:
        with self._lock:
            self._n_lost += 1
        self._on_loss()
