"""The process that decodes large request lines from a socket, one after another.

Started by the daemon as ``python -m inferd.line_decoder FD PARENT_PID``. Its first message
reports its sandbox; the daemon sends no line before.
"""

import os
import resource
import socket
import sys
from typing import Final

from inferd.limits.line_decoder import DECODE_CPU_S, RECYCLE_MEMORY_BYTES
from inferd.line_decoder.decode import decode_large_line
from inferd.line_decoder.messages import LENGTH_BYTES, TASK_DECODER, framed
from inferd.line_decoder.sandbox import enter_sandbox
from inferd.sandbox.pdeathsig import die_with_parent

_STATM_BYTES: Final = 128
"""Bytes to read of ``/proc/self/statm``: seven numbers."""


def main() -> None:
    """Serve the daemon at the other end of the socket until it closes it."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    with socket.socket(fileno=fd) as sock:
        sock.sendall(framed(enter_sandbox()))
        while head := _receive(sock, LENGTH_BYTES):
            task = TASK_DECODER.decode(_receive(sock, int.from_bytes(head, "little")))
            line = _receive(sock, task.n_bytes)
            _allow_more_time()
            result, sections = decode_large_line(task, bytes(line))
            del line
            sock.sendall(framed(result))
            for section in sections:
                sock.sendall(section)
            del sections
            if _resident_bytes(statm) > RECYCLE_MEMORY_BYTES:
                return


def _allow_more_time() -> None:
    """Raise the CPU limit for the next line; the kernel ends the process beyond it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = int(usage.ru_utime + usage.ru_stime) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent_s + DECODE_CPU_S, hard))


def _resident_bytes(statm: int) -> int:
    """Return the resident bytes; the peak would include the parent's before ``exec``."""
    n_pages = os.pread(statm, _STATM_BYTES, 0).split()[1]
    return int(n_pages) * resource.getpagesize()


def _receive(sock: socket.socket, n_bytes: int) -> bytearray:
    """Receive a number of bytes; none if the daemon has closed the socket."""
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
