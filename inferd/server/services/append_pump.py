"""Audio that is appended during its transcription: from the client to the backend."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from inferd.errors import InferdError
from inferd.server.media.append_queue import empty_append_error
from inferd.server.media.attachments import duplicated
from inferd.server.media.growing_audio import GrowingAudioFile
from inferd.server.request_context import RequestContext
from inferd.wire.speech import AppendLine


class OnAppended(Protocol):
    """Reports the size of the audio file to the backend, and whether it is final."""

    def __call__(self, n_bytes: int, *, is_last: bool) -> None:
        """Report the size in bytes."""


class AppendPump:
    """Copies appended audio to the request's file as fast as the backend reads it.

    Args:
        audio: the file that grows.
        context: of the request to which the client appends.
        on_appended: reports the new size to the backend.
    """

    def __init__(
        self,
        audio: GrowingAudioFile,
        context: RequestContext,
        on_appended: OnAppended,
    ) -> None:
        self._audio = audio
        self._context = context
        self._on_appended = on_appended

    async def run(self) -> None:
        """Copy until the audio ends; an invalid append fails the request."""
        try:
            await self._copy_all()
        except InferdError as error:
            self._context.fail(error)

    async def _copy_all(self) -> None:
        """Copy appends up to the last, or until the client can send no more."""
        async for line, fds in self._context.appends:
            if line.end:
                self._context.audio_ended_at = trio.current_time()
            if line.bytes is not None:
                await self._audio.append_text(line.bytes, self._report_growth)
            elif line.fd is not None:
                # a duplicate: a failure of the request may close the line's own
                with duplicated(self._audio.attachment, fds[line.fd]) as fd:
                    _refuse_empty(line, fd)
                    await self._audio.append_file(fd, self._report_growth)
        if self._context.audio_ended_at is None:
            self._context.audio_ended_at = trio.current_time()
        self._audio.end()
        self._on_appended(self._audio.n_bytes, is_last=True)

    def _report_growth(self) -> None:
        self._on_appended(self._audio.n_bytes, is_last=False)


def _refuse_empty(line: AppendLine, fd: int) -> None:
    """Refuse an empty file that is not the last: it would hold a permit for nothing."""
    if not line.end and not os.fstat(fd).st_size:
        raise empty_append_error(line)


@asynccontextmanager
async def in_background(run: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run a function in a task of its own while inside; cancel the task on leaving."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield
        except Exception as error:  # noqa: BLE001  # raised as it is, not in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
