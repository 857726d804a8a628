"""Detect a hung worker: it is silent, or sends heartbeats without progress in its jobs."""

import math
from dataclasses import dataclass
from typing import Final

import trio

from inferd.backend.job import SAMPLE_BYTES, Media

AUDIO_WINDOW_S: Final = 30.0
"""Seconds of audio that may arrive before a worker must report progress: whisper's window.
With less it may wait for more, and so for a client that sends nothing for a while."""


@dataclass(slots=True)
class _Audio:
    """A running transcription's open medium."""

    due_bytes: float
    """Unread bytes from which on the worker must make progress."""
    n_bytes: int
    processed_bytes: int = 0
    """The bytes that there were at the worker's last progress."""
    is_last: bool = False
    is_running: bool = False

    @property
    def is_due(self) -> bool:
        """Whether the worker must make progress with it."""
        n_unprocessed = self.n_bytes - self.processed_bytes
        return self.is_running and (self.is_last or n_unprocessed >= self.due_bytes)


class Watchdog:
    """Watchdog over a worker's last message and last progress.

    Of the running jobs, at least one must make progress: a job that waits in the worker for
    others cannot be distinguished from one that it has forgotten. A job that waits for more
    audio need not, nor one that is paused.

    Args:
        now: seconds on trio's clock, as all times here.
    """

    def __init__(self, now: float) -> None:
        self._received_at = now
        self._progress_at = now
        self._running: set[int] = set()  # the jobs of which one must make progress
        self._audio: dict[int, _Audio] = {}

    def track_audio(self, ticket: int, media: Media) -> None:
        """Note that a job with an open medium is to be prepared."""
        due_bytes = AUDIO_WINDOW_S * SAMPLE_BYTES * media.sample_rate
        self._audio[ticket] = _Audio(due_bytes, media.n_bytes)

    def appended(self, ticket: int, n_bytes: int, now: float, *, is_last: bool) -> None:
        """Note the bytes that an open medium has by now, in all."""
        if (audio := self._audio.get(ticket)) is not None:
            audio.n_bytes = n_bytes
            audio.is_last |= is_last
            self._update_running(ticket, audio, now)

    def job_started(self, ticket: int, now: float) -> None:
        """Note that a job is to run."""
        if (audio := self._audio.get(ticket)) is not None:
            audio.is_running = True
            self._update_running(ticket, audio, now)
        else:
            self._add(ticket, now)

    def job_ended(self, ticket: int) -> None:
        """Note that a job has ended or was dropped."""
        self._running.discard(ticket)
        self._audio.pop(ticket, None)

    def message_received(self, now: float) -> None:
        """Note that the worker sent a message, of whatever type."""
        self._received_at = now

    def progress(self, now: float) -> None:
        """Note that a running job has made progress."""
        self._progress_at = now

    def audio_progress(self, ticket: int, now: float) -> None:
        """Note that a transcription has made progress with all audio that there is."""
        self.progress(now)
        if (audio := self._audio.get(ticket)) is not None:
            audio.processed_bytes = audio.n_bytes
            self._update_running(ticket, audio, now)

    def job_paused(self, ticket: int, now: float) -> None:
        """Note that a job is paused until it is to run again."""
        self.progress(now)
        self._running.discard(ticket)
        if (audio := self._audio.get(ticket)) is not None:
            audio.is_running = False

    def job_failed(self, ticket: int, now: float) -> None:
        """Note that a job failed: progress only if it was running."""
        if ticket in self._running:
            self.progress(now)
            self.job_ended(ticket)

    def _update_running(self, ticket: int, audio: _Audio, now: float) -> None:
        if audio.is_due:
            self._add(ticket, now)
        else:
            self._running.discard(ticket)

    def _add(self, ticket: int, now: float) -> None:
        if not self._running:
            self._progress_at = now
        self._running.add(ticket)

    def deadline(self, silence_s: float) -> float:
        """Return when the worker counts as hung, unless a message is received before."""
        return silence_s + min(
            self._received_at, self._progress_at if self._running else math.inf
        )

    async def wait_until_hung(self, silence_s: float) -> str:
        """Wait until the worker hangs; return the reason.

        One task does this, instead of a deadline for each message.

        Args:
            silence_s: seconds that the worker may be silent, or run jobs without progress.
        """
        self._received_at = trio.current_time()
        while (  # noqa: ASYNC110  # avoids an event for each message
            deadline := self.deadline(silence_s)
        ) > trio.current_time():
            await trio.sleep_until(deadline)
        if self._received_at + silence_s > trio.current_time():
            return f"hung: no progress for {silence_s:g} s"
        return silence_reason(silence_s)


def silence_reason(silence_s: float) -> str:
    """Describe that a worker was silent for too long."""
    return f"hung: no message for {silence_s:g} s"
