"""Make media readable, in a thread beside the one that decodes.

A picture takes a projector milliseconds to a minute. Meanwhile running answers go on, with
fewer threads, and the worker gives signs of life.
"""

import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from inferd.worker.backend import LoadError
from inferd.worker.limits import MEDIA_TEST_S
from inferd.worker.llama.clips import Clip
from inferd.worker.llama.projector import Projector, ProjectorError
from inferd.worker.llama.shown import Shown
from inferd.worker.llama.spans import Seen

__all__ = ["Projecting"]

_EXIT_BUG: Final = 70


class _Wish(NamedTuple):
    ticket: int
    owner: int
    seen: Seen
    keeps: bool


class Projecting:
    """The projector's thread, and what jobs want of it, first come, first served.

    Args:
        projector: that computes; nobody else calls its ``encode``.
        shown: what was made before.
    """

    def __init__(self, projector: Projector, shown: Shown) -> None:
        self._projector = projector
        self._shown = shown
        self._changed = threading.Condition()
        self._wishes: deque[_Wish] = deque()
        self._current: _Wish | None = None
        self._dropped: int | None = None
        self._has_thread = False
        self.n_encoded = 0
        """Parts whose vectors were computed so far."""

    @property
    def n_threads(self) -> int:
        """Threads that compute now."""
        return self._projector.n_threads if self._current else 0

    def self_test(self) -> None:
        """Compute for real, for ``MEDIA_TEST_S`` at most.

        Raises:
            LoadError: it fails, or what it gives are no numbers.
        """
        until = time.monotonic() + MEDIA_TEST_S
        try:
            for parts in self._projector.samples():
                for each in parts:
                    if isinstance(each, Clip):
                        self._projector.encode(each, lambda: time.monotonic() < until)
        except ProjectorError as error:
            raise LoadError(f"mmproj self-test failed: {error}") from error

    def begin(
        self, ticket: int, owner: int, media: Sequence[Seen], *, keeps: bool
    ) -> None:
        """Have media made readable for a job, in their order.

        Args:
            ticket: of the job.
            owner: the user whose they are.
            media: some of whose parts have no vectors.
            keeps: whether these are kept for other jobs.
        """
        with self._changed:
            self._wishes += (_Wish(ticket, owner, each, keeps) for each in media)
            self._changed.notify_all()
            if media and not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._run, name="project", daemon=True).start()

    def drop(self, ticket: int) -> None:
        """Forget what a job wants; what is computed for it is cut short."""
        self.rest(ticket)
        with self._changed:
            if self._current and self._current.ticket == ticket:
                self._dropped = ticket

    def rest(self, ticket: int) -> None:
        """Forget what a job wants, but for what is computed for it now."""
        with self._changed:
            kept = [each for each in self._wishes if each.ticket != ticket]
            self._wishes = deque(kept)

    def wait(self, seconds: float) -> bool:
        """Wait until something is readable; tell whether anything was computed meanwhile."""
        n_seen = self._projector.n_seen
        with self._changed:
            if self._current or self._wishes:
                self._changed.wait(seconds)
        return self._projector.n_seen != n_seen

    def _run(self) -> None:
        try:
            while True:
                self._fulfil(self._next())
        except BaseException:  # noqa: BLE001  # half a worker is worse than none
            traceback.print_exc()
            os._exit(_EXIT_BUG)

    def _next(self) -> _Wish:
        with self._changed:
            while not self._wishes:
                self._changed.wait()
            self._dropped = None
            self._current = self._wishes.popleft()
            return self._current

    def _fulfil(self, wish: _Wish) -> None:
        seen = wish.seen
        known = self._shown.find(wish.owner, seen.digest) if wish.keeps else None
        if known is not None:  # made for another job since this one was prepared
            seen.take(known)
        for each in seen.clips:
            if each.vectors is None and self._is_wanted():
                self._encode(each)
                with self._changed:
                    self._changed.notify_all()
        is_made = all(each.vectors is not None for each in seen.clips)
        if wish.keeps and is_made and known is None:
            self._shown.keep(wish.owner, seen.digest, seen.parts)
        with self._changed:
            self._current = None
            self._changed.notify_all()

    def _encode(self, clip: Clip) -> None:
        try:
            clip.vectors = self._projector.encode(clip, self._is_wanted)
        except ProjectorError as error:
            clip.failure = f"{clip.name}: {error}"
        else:
            self.n_encoded += clip.vectors is not None
        if clip.vectors is not None:
            clip.source = None

    def _is_wanted(self) -> bool:
        return self._dropped is None
