"""The process that forks decoders, as the bridge sees it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from typing import Final, TypeVar

import msgspec
import trio

from inferd.client.memfd import scm_rights
from inferd.limits.media_decoder import MAX_REPORT_BYTES
from inferd.media_decoder.messages import (
    ENCODER,
    FORK_REPLY,
    READY,
    DecodeMedium,
    Forked,
    ForkServerReady,
)
from inferd.scm_rights import receive_fds

T = TypeVar("T")
PROGRAM: Final = ("-P", "-m", "inferd.media_decoder")
PASSED_ON: Final = ("LANG", "PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of the environment that it gets; no token is among them."""


class ForkServer:
    """The running process; one that fails in any way is of no further use.

    Ownership: ``kill`` it in the end; its decoders end with it.

    Raises:
        OSError: no descriptor or process is available.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # with ``DEVNULL`` Python 3.11.2 leaves it open where descriptors run out
        with theirs, FileIO(os.devnull, "r+") as null:
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own module
                    [
                        *(sys.executable, *PROGRAM),
                        *(str(theirs.fileno()), str(os.getpid())),
                    ],
                    pass_fds=(theirs.fileno(),),
                    env={k: os.environ[k] for k in PASSED_ON if k in os.environ},
                    stdin=null,
                    stdout=null,
                    stderr=null,
                    process_group=0,  # a terminal's keys are for the bridge
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)  # noqa: FBT003  # socket's own signature
        self._sock = ours

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def wait_ready(self) -> ForkServerReady:
        """Wait until it is confined, once.

        Raises:
            OSError: it has ended, or sent something else.
        """
        data, fds = await self._receive()
        _close_all(fds)
        return _decoded(READY, data)

    async def fork(self, task: DecodeMedium, fds: Sequence[int]) -> int | None:
        """Have a decoder forked; return a descriptor of its process, the caller's to close.

        Args:
            task: for it.
            fds: of the file, of the memfd to write to, and of the pipe for its report; it
                has its own copies then.

        Returns:
            ``None`` if the kernel had no process or memory for it.

        Raises:
            OSError: this process has ended, or sent something else.

        Cancellation: leaves this unusable.
        """
        await trio.lowlevel.wait_writable(self._sock)
        self._sock.sendmsg([ENCODER.encode(task)], scm_rights(fds))
        data, received = await self._receive()
        if received and not _is_forked(data):
            _close_all(received)
            return None
        return received[0] if received else None

    async def _receive(self) -> tuple[bytes, Sequence[int]]:
        await trio.lowlevel.wait_readable(self._sock)
        data, fds, _ = receive_fds(self._sock, MAX_REPORT_BYTES, 1)
        if not data:
            raise OSError("the process that forks decoders has ended")
        return data, fds

    def kill(self) -> None:
        """Kill it with its decoders, and reap it."""
        self._sock.close()
        with self._process as process:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


def end_decoder(pidfd: int) -> None:
    """Kill a decoder if it still runs."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _is_forked(data: bytes) -> bool:
    return isinstance(_decoded(FORK_REPLY, data), Forked)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise OSError("the process that forks decoders sent something else") from error
