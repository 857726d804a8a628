"""Read lines that come by a socket, one after another, until it ends.

Started by the daemon as ``python -m inferd.decoder FD``.
"""

import resource
import socket
import sys
from pathlib import Path

from inferd.decoder.limits import KEPT_MEMORY_BYTES, READ_CPU_S, READ_MEMORY_BYTES
from inferd.decoder.messages import ASK, LENGTH_BYTES, framed
from inferd.decoder.read import read


def main() -> None:
    """Serve the daemon that has the other end of the socket."""
    _confine()
    with socket.socket(fileno=int(sys.argv[1])) as sock:
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
            if _memory() > KEPT_MEMORY_BYTES:
                return


def _confine() -> None:
    """Give up what reading takes no part of: the one place for it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (READ_MEMORY_BYTES, READ_MEMORY_BYTES))


def _allow_more_time() -> None:
    """Let the kernel end this process where the next line takes too long."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = int(usage.ru_utime + usage.ru_stime) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent_s + READ_CPU_S, hard))


def _memory() -> int:
    """Tell how much memory is resident: the most there ever was counts our parent's in."""
    n_pages = Path("/proc/self/statm").read_text().split()[1]
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
