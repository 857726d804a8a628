"""Where lines of the log go: by a thread of each sink's own, so that none stalls anybody.

When more than ``LOG_QUEUE_LINES`` wait, or a line cannot be written, it is lost and
counted. The count is a line of the log as soon as the sink takes lines again.
"""

import os
import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from inferd.limits import LOG_QUEUE_LINES

FLUSH_S: Final = 1.0
"""Seconds that the last lines get at the end."""

RETRY_S: Final = 1.0
"""Seconds between two tries to tell how many lines were lost, while no line comes."""

STDERR: Final = 2

COMPLAINT_S: Final = 60.0
"""Seconds in which a sink that works and fails by turns is complained of once."""


class Writer(Protocol):
    """Puts lines where they belong; may take any time to do so."""

    def write(self, line: bytes) -> None:
        """Write a line with its newline; the start of one that failed is ended first.

        Raises:
            OSError: it was not written, or not to its end.
        """

    def close(self) -> None:
        """Let go of what it holds."""


class Descriptor:
    """A file descriptor that somebody else opened and will close."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_torn = False

    def __str__(self) -> str:
        return "stderr" if self._fd == STDERR else f"descriptor {self._fd}"

    def write(self, line: bytes) -> None:
        """Write a line, waiting for whoever reads.

        Raises:
            OSError: it was not written, or not to its end.
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
        """Leave it open: it is not ours."""

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:  # a pipe that somebody else made non-blocking
            writable = select.poll()
            writable.register(self._fd, select.POLLOUT)
            writable.poll()
            return 0


class LineSink:
    """Has lines written, never waiting for it.

    Args:
        writer: what writes them, in the sink's thread alone.
        report: makes the line that tells how many were lost.
        on_loss: called for each that is lost, in any thread.
        on_failure: called when writing fails where it worked before, once in
            ``COMPLAINT_S`` seconds, in the sink's thread.
    """

    def __init__(
        self,
        writer: Writer,
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
        self._silent_until = time.monotonic()
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue a line with its newline, or lose it."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._lose()

    def close(self) -> None:
        """Write what is queued, as far as there is time."""
        try:
            self._lines.put(None, timeout=FLUSH_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_S)

    # --- in its thread ------------------------------------------------------------

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            if not (self._has_told_losses() and self._has_written(line)) and line:
                self._lose()
        self._has_told_losses()
        self._writer.close()

    def _next(self) -> bytes | None:
        """Take the next line; nothing at all, if there are only losses to be told."""
        try:
            return self._lines.get(timeout=RETRY_S if self._n_lost else None)
        except queue.Empty:
            return b""

    def _has_told_losses(self) -> bool:
        with self._lock:
            n_lost, self._n_lost = self._n_lost, 0
        if not n_lost or self._has_written(self._report(n_lost)):
            return True
        with self._lock:
            self._n_lost += n_lost
        return False

    def _has_written(self, line: bytes) -> bool:
        if not line:
            return True
        try:
            self._writer.write(line)
        except OSError as error:
            self._complain(error)
            return False
        self._is_failing = False
        return True

    def _complain(self, error: OSError) -> None:
        has_worked, self._is_failing = not self._is_failing, True
        if has_worked and time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + COMPLAINT_S
            self._on_failure(error)

    def _lose(self) -> None:
        with self._lock:
            self._n_lost += 1
        self._on_loss()
