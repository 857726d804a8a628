"""The process that forks decoders: ``python -m inferd.media_decoder FD PARENT_PID``.

The bridge starts it with a socket of packets, over which it is asked, and closes that to end it.
Its decoders end with it.
"""

import gc
import os
import select
import socket
import sys
from collections.abc import Sequence

from inferd.client.memfd import scm_rights
from inferd.limits.media_decoder import MAX_REPORT_BYTES
from inferd.media_decoder.messages import (
    ENCODER,
    N_TASK_FDS,
    TASK,
    DecodeMedium,
    Forked,
    ForkServerReady,
    NotForked,
)
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.scm_rights import receive_fds


def main() -> None:
    """Serve the bridge until it closes the socket."""
    fd, parent_pid = map(int, sys.argv[1:3])
    die_with_parent(parent_pid)
    with socket.socket(fileno=fd) as control:
        try:
            from inferd.media_decoder.decode import warm_up  # noqa: PLC0415
        except ModuleNotFoundError as error:  # of an extra
            name = str(error.name)
            control.sendmsg([ENCODER.encode(ForkServerReady(not_installed=name))])
            return
        from inferd.media_decoder.sandbox import enter_forking  # noqa: PLC0415

        warm_up()
        missing = enter_forking(parent_pid)
        gc.collect()
        gc.freeze()  # so that garbage collection copies no pages in forks
        control.sendmsg([ENCODER.encode(ForkServerReady(missing=missing))])
        _ForkServer(control).serve()


class _ForkServer:
    """Forks a decoder for each task, and reaps it.

    Args:
        control: the socket to the bridge, which is trusted.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running: dict[int, int] = {}
        """Process ids of decoders, by the descriptors of the processes."""
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Serve until the bridge closes the socket."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._running:
                    self._reap(fd)
                elif not self._take_task():
                    return

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(self._running.pop(pidfd), 0)

    def _take_task(self) -> bool:
        """Receive a task and fork for it; return whether the bridge is still there."""
        data, fds, _ = receive_fds(self._control, MAX_REPORT_BYTES, N_TASK_FDS)
        if not data:
            return False
        task = TASK.decode(data)
        parent_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            self._control.sendmsg([ENCODER.encode(NotForked())])
        else:
            if not pid:
                for fd in (self._control.fileno(), *self._running):
                    os.close(fd)
                _decode_one(task, fds, parent_pid)
            self._tell_forked(pid)
        for fd in fds:
            os.close(fd)
        return True

    def _tell_forked(self, pid: int) -> None:
        pidfd = os.pidfd_open(pid)
        self._running[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        self._control.sendmsg([ENCODER.encode(Forked())], scm_rights([pidfd]))


def _decode_one(task: DecodeMedium, fds: Sequence[int], parent_pid: int) -> None:
    """Decode a file in this fork, report, and exit without cleanup, which it could influence."""
    from inferd.media_decoder.decode import decode_into  # noqa: PLC0415  # is imported
    from inferd.media_decoder.sandbox import enter_decoding  # noqa: PLC0415

    try:
        source, target, report = fds
        die_with_parent(parent_pid)
        with open(source, "rb", closefd=False) as file:  # a descriptor
            file.seek(0)  # it is where the bridge has ended writing
            enter_decoding(task)
            os.write(report, ENCODER.encode(decode_into(task, file, target)))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
