"""Read lines that come by a socket, one after another, until it ends.

Started by the daemon as ``python -m inferd.decoder FD PARENT_PID``. What holds the process
in is its first message; no line is sent before.
"""

import os
import resource
import socket
import sys
from typing import Final

from inferd.decoder.box import enter
from inferd.decoder.limits import KEPT_MEMORY_BYTES, READ_CPU_S
from inferd.decoder.messages import ASK, LENGTH_BYTES, framed
from inferd.decoder.read import read
from inferd.sandbox.parent import die_with

_STATM_BYTES: Final = 128
"""Of the file that tells memory: seven numbers."""


def main() -> None:
    """Serve the daemon that has the other end of the socket."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with(parent_pid)
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    with socket.socket(fileno=fd) as sock:
        sock.sendall(framed(enter()))
        while head := _receive(sock, LENGTH_BYTES):
            ask = ASK.decode(_receive(sock, int.from_bytes(head, "little")))
            line = _receive(sock, ask.n_bytes)
            _allow_more_time()
            answer, sections = read(ask, bytes(line))
            del line
            sock.sendall(framed(answer))
            for section in sections:
                sock.sendall(section)
            del sections
            if _memory(statm) > KEPT_MEMORY_BYTES:
                return


def _allow_more_time() -> None:
    """Let the kernel end this process where the next line takes too long."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = int(usage.ru_utime + usage.ru_stime) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent_s + READ_CPU_S, hard))


def _memory(statm: int) -> int:
    """Tell how much memory is resident: the most there ever was counts our parent's in."""
    n_pages = os.pread(statm, _STATM_BYTES, 0).split()[1]
    return int(n_pages) * resource.getpagesize()


def _receive(sock: socket.socket, n_bytes: int) -> bytearray:
    """Receive so many bytes; none where the daemon is gone."""
    data = bytearray(n_bytes)
    view = memoryview(data)
    while view:
        n_received = sock.recv_into(view)
        if not n_received:
            return bytearray()
        view = view[n_received:]
    return data


if __name__ == "__main__":
    main()
