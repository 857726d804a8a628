"""Start a worker process, hear its last words, and be sure that it is gone."""

import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import trio

from inferd.engine.spawn import Spawned, end, kill, spawn
from inferd.limits import (
    NATIVE_LOG_BYTES_PER_S,
    NATIVE_LOG_LINE_BYTES,
    NATIVE_LOG_LINES,
    NATIVE_LOG_READ_BYTES,
)

LAST_WORDS_S: Final = 1.0
"""Seconds that stderr may stay open after the end, held by a process it left behind."""


KILLED_BY: Final = "killed by"
"""How the description of a death by a signal begins."""

_COMPLAINT: Final = re.compile("error|assert|terminate called", re.IGNORECASE)
_CRASH: Final = re.compile(r"\S*:\d+: GGML_ASSERT|terminate called|CUDA error")
"""Last words of native code that quote its source, never a prompt or a grammar."""


class WorkerProcess:
    """A running worker: its end of the socketpair and its stderr.

    Use ``start_worker``, which also ends it.
    """

    def __init__(
        self,
        spawned: Spawned,
        stream: trio.SocketStream,
    ) -> None:
        assert spawned.popen.stderr is not None  # noqa: S101  # asked for by spawn
        self._stderr = trio.lowlevel.FdStream(os.dup(spawned.popen.stderr.fileno()))
        self._spawned = spawned
        self.stream = stream
        self.is_told = spawned.is_told
        """Whether it knows already what to load."""
        self._lines: deque[str] = deque(maxlen=NATIVE_LOG_LINES)
        self._is_silent = trio.Event()
        self._holds_client_text = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._spawned.popen.pid

    @property
    def complaint(self) -> str:
        """The last line of its stderr that complains; empty if there is none."""
        lines = [line for line in self._lines if _COMPLAINT.search(line)]
        return lines[-1] if lines else ""

    def serves_clients(self) -> None:
        """From here on, keep of its stderr only what can hold no client's text."""
        self._lines.clear()
        self._holds_client_text = True

    def kill(self) -> None:
        """Send it and what it started SIGKILL, which also ends a stopped process."""
        kill(self._spawned.popen)

    async def wait(self) -> int:
        """Wait for its end and its last words; give Popen's return code.

        Cancellation: safe; it goes on running.
        """
        code = await self.reap()
        with trio.move_on_after(LAST_WORDS_S):
            await self._is_silent.wait()
        return code

    async def reap(self) -> int:
        """Wait for its end alone; what it started and left behind is killed then."""
        return await reap(self._spawned)

    async def listen(self) -> None:
        """Read stderr until it closes, keeping the last lines.

        Bounds:
            Reads ``NATIVE_LOG_BYTES_PER_S``: code in a worker may write without an end.
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
        self._is_silent.set()

    def _keep(self, line: bytes) -> None:
        text = line[:NATIVE_LOG_LINE_BYTES].decode("utf-8", "replace").strip()
        if text and (not self._holds_client_text or _CRASH.match(text)):
            self._lines.append(text)


async def reap(spawned: Spawned) -> int:
    """Wait for a process's end and reap it; what it left in its group is killed then.

    The only place that waits for a process of ours: the event loop goes on meanwhile. One
    that is to be killed needs time, too, to give back gigabytes.

    Returns:
        Popen's return code.

    Cancellation: safe; the process goes on.
    """
    if spawned.popen.returncode is None:
        await trio.lowlevel.wait_readable(spawned.pidfd)
        kill(spawned.popen)
    return spawned.popen.wait()


@asynccontextmanager
async def start_worker(spawned: Spawned | None = None) -> AsyncIterator[WorkerProcess]:
    """Start a worker; on leaving, however, it is killed and reaped.

    Args:
        spawned: a process that was started before, to be used instead.

    Raises:
        OSError: there are too few descriptors or processes to be had; by itself, and
            nothing is left of the attempt.
    """
    with ExitStack() as cleanup:
        spawned = spawned or spawn()
        cleanup.callback(end, spawned)
        spawned.sock.setblocking(False)  # noqa: FBT003  # socket's own signature
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(spawned.sock))
        worker = WorkerProcess(spawned, stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.listen)
            try:
                yield worker
            finally:
                worker.kill()
                with trio.CancelScope(shield=True):
                    await worker.reap()
                    await stream.aclose()
                nursery.cancel_scope.cancel()


def describe_exit(code: int) -> str:
    """Say in words how a process ended."""
    if code >= 0:
        return f"exited with code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"{KILLED_BY} {names.get(-code, f'signal {-code}')}"
