"""The downloader: does one task after another for the command at the other end of a socket.

Started as ``python -m inferd.downloader FD PARENT_PID``. Its first message says what the
kernel lacks to restrict it.
"""

import socket
import sys
from contextlib import suppress

from inferd.limits.models import PULL_MESSAGE_BYTES
from inferd.models.pull.messages import HEADER, TASKS, DownloaderReady, Failure, framed
from inferd.sandbox.pdeathsig import die_with_parent


def main() -> None:
    """Serve the command until it closes the socket."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    with socket.socket(fileno=fd) as sock, suppress(ConnectionError):
        try:
            from inferd.downloader.tasks import TaskRunner  # noqa: PLC0415
        except ModuleNotFoundError as error:  # of an extra
            name = str(error.name)
            sock.sendall(framed(Failure(code="not_installed", detail=name)))
            return
        runner = TaskRunner(sock.sendall)
        missing = runner.enter_sandbox(parent_pid)
        sock.sendall(framed(DownloaderReady(missing=missing)))
        while header := _read(sock, HEADER.size):
            _, n_bytes = HEADER.unpack(header)
            data = _read(sock, min(n_bytes, PULL_MESSAGE_BYTES))
            runner.run(TASKS.decode(data))


def _read(sock: socket.socket, n_bytes: int) -> bytes:
    """Read a number of bytes; none if the command has closed the socket."""
    data = bytearray()
    while len(data) < n_bytes:
        block = sock.recv(n_bytes - len(data))
        if not block:
            return b""
        data += block
    return bytes(data)


if __name__ == "__main__":
    main()
