"""A sink's writer that fails or waits when it is told to."""

import errno
import threading


class ScriptedWriter:
    """Keeps what it is given; see ``inferd.server.telemetry.log_writer.LogLineWriter``."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.errno: int | None = None
        """While it is set, writing fails with it."""
        self.fails_at: set[int] = set()
        """Numbers of the calls that fail as well, the first is 0."""
        self.n_calls = 0
        self.may_write = threading.Event()
        """While it is clear, writing waits."""
        self.may_write.set()
        self.is_closed = False

    def __str__(self) -> str:
        return "scripted"

    def write(self, line: bytes) -> None:
        """Keep a line, or fail."""
        self.may_write.wait()
        number, self.n_calls = self.n_calls, self.n_calls + 1
        if self.errno is not None:
            raise OSError(self.errno, errno.errorcode[self.errno])
        if number in self.fails_at:
            raise OSError(errno.EIO, f"call {number}")
        self.lines.append(line)

    def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True
