"""A running worker process: read its stderr, kill it and reap it."""

import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import trio

from inferd.config.kinds.kind import Credential
from inferd.engine.supervisor.spawn import SpawnedProcess, kill, kill_and_reap, spawn
from inferd.limits.engine import (
    NATIVE_LOG_BYTES_PER_S,
    NATIVE_LOG_LINE_BYTES,
    NATIVE_LOG_LINES,
    NATIVE_LOG_READ_BYTES,
)

STDERR_DRAIN_S: Final = 1.0
"""Seconds that stderr may stay open after the exit, held by a process left behind."""


KILLED_BY: Final = "killed by"
"""How ``describe_exit`` begins for a process that was killed by a signal."""

_ERROR_LINE: Final = re.compile("error|assert|terminate called", re.IGNORECASE)
_CRASH: Final = re.compile(r"\S*:\d+: GGML_ASSERT|terminate called|CUDA error")
"""Error lines of native code that quote its source, never a prompt or a grammar."""


class WorkerProcess:
    """A running worker: the daemon's end of its socketpair, and its stderr.

    Use ``start_worker``, which also kills and reaps it.
    """

    def __init__(
        self,
        spawned: SpawnedProcess,
        stream: trio.SocketStream,
    ) -> None:
        assert spawned.popen.stderr is not None  # noqa: S101  # asked for by spawn
        self._stderr = trio.lowlevel.FdStream(os.dup(spawned.popen.stderr.fileno()))
        self._spawned = spawned
        self.stream = stream
        self.load_sent = spawned.load_sent
        """Whether it has been sent its ``Load`` message."""
        self._lines: deque[str] = deque(maxlen=NATIVE_LOG_LINES)
        self._stderr_closed = trio.Event()
        self._redacts = False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._spawned.popen.pid

    @property
    def error_line(self) -> str:
        """The last line of stderr that reports an error; empty if there is none."""
        lines = [line for line in self._lines if _ERROR_LINE.search(line)]
        return lines[-1] if lines else ""

    def redact_stderr(self) -> None:
        """From here on, keep only lines of stderr that cannot contain clients' text."""
        self._lines.clear()
        self._redacts = True

    def kill(self) -> None:
        """Send SIGKILL, which also ends a stopped process, to the process and its group."""
        kill(self._spawned.popen)

    async def wait(self) -> int:
        """Wait for the exit and for the end of stderr; return Popen's return code.

        Cancellation: safe; the process goes on running.
        """
        code = await self.reap()
        with trio.move_on_after(STDERR_DRAIN_S):
            await self._stderr_closed.wait()
        return code

    async def reap(self) -> int:
        """Wait for the exit alone; processes that it left behind are killed then."""
        return await reap(self._spawned)

    async def read_stderr(self) -> None:
        """Read stderr until it closes, keeping the last lines.

        Bounds:
            Reads ``NATIVE_LOG_BYTES_PER_S``: native code may write without end.
        """
        rest = b""
        async with self._stderr:
            while data := await self._stderr.receive_some(NATIVE_LOG_READ_BYTES):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[:NATIVE_LOG_LINE_BYTES]
                for line in lines:
                    self._keep(line)
                await trio.sleep(len(data) / NATIVE_LOG_BYTES_PER_S)
        self._keep(rest)
        self._stderr_closed.set()

    def _keep(self, line: bytes) -> None:
        text = line[:NATIVE_LOG_LINE_BYTES].decode("utf-8", "replace").strip()
        if text and (not self._redacts or _CRASH.match(text)):
            self._lines.append(text)


async def reap(spawned: SpawnedProcess) -> int:
    """Wait for a process's exit and reap it; the rest of its group is killed then.

    The only place that waits for one of the daemon's processes: the event loop goes on
    meanwhile. A killed process, too, needs time to release gigabytes.

    Returns:
        Popen's return code.

    Cancellation: safe; the process goes on running.
    """
    if spawned.popen.returncode is None:
        await trio.lowlevel.wait_readable(spawned.pidfd)
        kill(spawned.popen)
    return spawned.popen.wait()


@asynccontextmanager
async def start_worker(
    program: str,
    spawned: SpawnedProcess | None = None,
    credential: Credential | None = None,
) -> AsyncIterator[WorkerProcess]:
    """Start a worker; on leaving, it is killed and reaped in any case.

    Args:
        program: the module that is run as the process.
        spawned: a process that was started before, to be used instead.
        credential: the key that it gets.

    Raises:
        OSError: out of descriptors or processes; raised bare, not in a group, and nothing
            is left of the attempt.
    """
    with ExitStack() as cleanup:
        spawned = spawned or spawn(program, keeps_stderr=True, credential=credential)
        cleanup.callback(kill_and_reap, spawned)
        spawned.sock.setblocking(False)  # noqa: FBT003  # socket's own signature
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(spawned.sock))
        worker = WorkerProcess(spawned, stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.read_stderr)
            try:
                yield worker
            finally:
                worker.kill()
                with trio.CancelScope(shield=True):
                    await worker.reap()
                    await stream.aclose()
                nursery.cancel_scope.cancel()


def describe_exit(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exited with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"{KILLED_BY} {names.get(-code, f'signal {-code}')}"
