"""Encode media in a thread beside the decoding one.

Encoding an image takes milliseconds to a minute. Meanwhile running answers continue, with
fewer threads, and the worker sends heartbeats.
"""

import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from inferd.limits.worker import MEDIA_TEST_S
from inferd.worker.backend import LoadError
from inferd.worker.llama.multimodal.cache import MediaCache
from inferd.worker.llama.multimodal.chunks import MediaChunk
from inferd.worker.llama.multimodal.projector import Projector, ProjectorError
from inferd.worker.llama.multimodal.prompt_spans import PromptMedia

__all__ = ["ProjectorThread"]

_EXIT_BUG: Final = 70


class _EncodeRequest(NamedTuple):
    ticket: int
    owner: int
    media: PromptMedia
    keeps: bool


class ProjectorThread:
    """The encoding thread and its FIFO queue of jobs' media.

    Args:
        projector: the projector; only this thread calls its ``encode``.
        cache: the cache of encoded media.
    """

    def __init__(self, projector: Projector, cache: MediaCache) -> None:
        self._projector = projector
        self._cache = cache
        self._changed = threading.Condition()
        self._queue: deque[_EncodeRequest] = deque()
        self._current: _EncodeRequest | None = None
        self._dropped: int | None = None
        self._has_thread = False
        self.n_encoded = 0
        """Chunks that were encoded so far."""

    @property
    def n_threads(self) -> int:
        """Threads that are encoding now."""
        return self._projector.n_threads if self._current else 0

    def self_test(self) -> None:
        """Encode test inputs, for at most ``MEDIA_TEST_S``.

        Raises:
            LoadError: encoding failed, or its output is not finite.
        """
        until = time.monotonic() + MEDIA_TEST_S
        try:
            for chunks in self._projector.test_inputs():
                for each in chunks:
                    if isinstance(each, MediaChunk):
                        self._projector.encode(each, lambda: time.monotonic() < until)
        except ProjectorError as error:
            raise LoadError(f"mmproj self-test failed: {error}") from error

    def submit(
        self, ticket: int, owner: int, media: Sequence[PromptMedia], *, keeps: bool
    ) -> None:
        """Queue a job's media for encoding, in order.

        Args:
            ticket: of the job.
            owner: the job's user.
            media: media with chunks that are not encoded.
            keeps: whether to use the cache.
        """
        with self._changed:
            self._queue += (
                _EncodeRequest(ticket, owner, each, keeps) for each in media
            )
            self._changed.notify_all()
            if media and not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="project", daemon=True).start()

    def drop(self, ticket: int) -> None:
        """Remove a job's media, and abort the one being encoded."""
        self.cancel_queued(ticket)
        with self._changed:
            if self._current and self._current.ticket == ticket:
                self._dropped = ticket

    def cancel_queued(self, ticket: int) -> None:
        """Remove a job's queued media; the one being encoded continues."""
        with self._changed:
            remaining = [each for each in self._queue if each.ticket != ticket]
            self._queue = deque(remaining)

    def wait(self, seconds: float) -> bool:
        """Wait until a chunk is encoded; true if encoding made progress meanwhile."""
        n_seen = self._projector.n_progress
        with self._changed:
            if self._current or self._queue:
                self._changed.wait(seconds)
        return self._projector.n_progress != n_seen

    def _run(self) -> None:
        try:
            while True:
                self._serve(self._next())
        except BaseException:  # noqa: BLE001  # a worker without this thread would hang
            traceback.print_exc()
            os._exit(_EXIT_BUG)

    def _next(self) -> _EncodeRequest:
        with self._changed:
            while not self._queue:
                self._changed.wait()
            self._dropped = None
            self._current = self._queue.popleft()
            return self._current

    def _serve(self, request: _EncodeRequest) -> None:
        media = request.media
        known = self._cache.find(request.owner, media.digest) if request.keeps else None
        if known is not None:  # encoded for another job since this one was prepared
            media.copy_vectors(known)
        for each in media.media_chunks:
            if each.vectors is None and self._is_wanted():
                self._encode(each)
                with self._changed:
                    self._changed.notify_all()
        is_made = all(each.vectors is not None for each in media.media_chunks)
        if request.keeps and is_made and known is None:
            self._cache.keep(request.owner, media.digest, media.chunks)
        with self._changed:
            self._current = None
            self._changed.notify_all()

    def _encode(self, chunk: MediaChunk) -> None:
        try:
            chunk.vectors = self._projector.encode(chunk, self._is_wanted)
        except ProjectorError as error:
            chunk.failure = f"{chunk.name}: {error}"
        else:
            self.n_encoded += chunk.vectors is not None
        if chunk.vectors is not None:
            chunk.source = None

    def _is_wanted(self) -> bool:
        return self._dropped is None
