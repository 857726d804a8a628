"""Sound that comes while it is written down: from the client to the backend, in step."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import trio

from inferd.errors import InferdError
from inferd.server.activity import Activity
from inferd.server.appends import brings_nothing
from inferd.server.media import duplicated
from inferd.server.sound import Sound
from inferd.wire.speech import AppendLine


class Append(Protocol):
    """Tells the backend how many bytes there are, and whether these are all."""

    def __call__(self, n_bytes: int, *, is_last: bool) -> None:
        """Tell it."""


class Feed:
    """Takes what a client appends as fast as it is heard, and gives it to the backend.

    Args:
        sound: that grows.
        activity: of the request to which is appended.
        append: tells the backend.
    """

    def __init__(
        self,
        sound: Sound,
        activity: Activity,
        append: Append,
    ) -> None:
        self._sound = sound
        self._activity = activity
        self._append = append

    async def run(self) -> None:
        """Take what comes until its end; what cannot be used ends the request."""
        try:
            await self._take_all()
        except InferdError as error:
            self._activity.fail(error)

    async def _take_all(self) -> None:
        """Take lines up to the last, or until the client can send no more."""
        async for line, fds in self._activity.appends:
            if line.end:
                self._activity.sound_ended_at = trio.current_time()
            if line.bytes is not None:
                await self._sound.append_text(line.bytes, self._grown)
            elif line.fd is not None:
                # of its own: a failure may close the line's in the midst of it
                with duplicated(self._sound.attachment, fds[line.fd]) as fd:
                    _refuse_nothing(line, fd)
                    await self._sound.append_file(fd, self._grown)
        if self._activity.sound_ended_at is None:
            self._activity.sound_ended_at = trio.current_time()
        self._sound.end()
        self._append(self._sound.n_bytes, is_last=True)

    def _grown(self) -> None:
        self._append(self._sound.n_bytes, is_last=False)


def _refuse_nothing(line: AppendLine, fd: int) -> None:
    """Refuse an empty file that ends nothing: its request would wait for nothing."""
    if not line.end and not os.fstat(fd).st_size:
        raise brings_nothing(line)


def feeding(feed: Feed) -> AbstractAsyncContextManager[None]:
    """Have a feed run beside what is inside, and end with it."""
    return beside(feed.run)


@asynccontextmanager
async def beside(run: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Have something run beside what is inside, and end with it."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        try:
            yield
        except Exception as error:  # noqa: BLE001  # to leave as it is, not in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
