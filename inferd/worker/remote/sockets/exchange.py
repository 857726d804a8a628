"""A line to a socket of another daemon, and the frames of its answer."""

import errno
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from inferd.config.kinds.remote import RemoteSettings
from inferd.limits.connections import READ_BYTES
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.deadline import AnswerDeadline
from inferd.worker.remote.http.json_lines import JsonLineSplitter
from inferd.worker.remote.sockets.peer import UntrustedListenerError, check_listener

_RETRY_S: Final = 0.01
"""Seconds until a connection is tried again where too many wait to be accepted."""


class SocketConnections:
    """Connections to the sockets in a directory, one for each request.

    Closing one ends the request there.

    Args:
        directory: of the sockets.
        settings: the bounds.
    """

    def __init__(self, directory: Path, settings: RemoteSettings) -> None:
        self._directory = directory
        self._settings = settings

    @asynccontextmanager
    async def ask(
        self, request: RemoteRequest
    ) -> AsyncIterator[tuple[AsyncGenerator[bytes, None], AnswerDeadline]]:
        """Send a request; give the frames of its answer.

        Raises:
            RemoteError: it failed, inside the block as well.

        Cancellation: closes the connection, by which the remote ends its work.
        """
        with trio.CancelScope() as scope:
            deadline = AnswerDeadline(self._settings, scope)
            try:
                async with await self._connect(
                    self._directory / request.path
                ) as stream:
                    await _send(stream, request.body)
                    yield self._frames(stream, request.form), deadline
            except (trio.BrokenResourceError, OSError) as error:
                what = "in its middle" if deadline.has_begun else "before it began"
                raise RemoteError(f"the remote's answer broke off {what}") from error
        if scope.cancelled_caught:
            raise RemoteError(f"the remote is too slow: {deadline.reason}")

    async def _connect(self, path: Path) -> trio.SocketStream:
        seconds = self._settings.connect_timeout_s
        with trio.move_on_after(seconds):
            try:
                return await _open(path, self._settings.trusted_uids)
            except UntrustedListenerError as error:
                raise RemoteError(f"the remote is refused: {error}") from error
            except OSError as error:
                raise RemoteError(
                    f"the remote cannot be reached: {path.name}: {error.strerror}"
                ) from error
        raise RemoteError(f"the remote cannot be reached within {seconds:g} s")

    async def _frames(
        self, stream: trio.SocketStream, form: AnswerForm
    ) -> AsyncGenerator[bytes, None]:
        """Give the frames until the daemon ends, which has nothing more to be asked."""
        await stream.send_eof()
        is_whole = form is AnswerForm.DOCUMENT
        settings = self._settings
        splitter = JsonLineSplitter(
            settings.max_answer_bytes if is_whole else settings.max_event_bytes
        )
        n_left = self._settings.max_answer_bytes
        while data := await stream.receive_some(READ_BYTES):
            n_left -= len(data)
            if n_left < 0:
                raise RemoteError(
                    f"the remote's answer has over {self._settings.max_answer_bytes} bytes"
                )
            for line in splitter.feed(data):
                yield line
        for line in splitter.finish():
            yield line

    async def aclose(self) -> None:
        """Do nothing: no connection is kept."""


async def _open(path: Path, trusted_uids: Collection[int]) -> trio.SocketStream:
    """Connect to a socket of a user who is trusted; a full backlog is waited for."""
    while True:
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            await sock.connect(str(path))
            check_listener(sock, trusted_uids)
        except BlockingIOError:
            sock.close()
            await trio.sleep(_RETRY_S)
        except BaseException:
            sock.close()
            raise
        else:
            return trio.SocketStream(sock)


async def _send(stream: trio.SocketStream, line: bytes) -> None:
    """Send a line; of a connection that is closed meanwhile, the reason can still be read."""
    try:
        await stream.send_all(line)
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EPIPE:
            raise
