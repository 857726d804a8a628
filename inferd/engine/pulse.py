"""Tell whether a worker hangs: it is silent, or it beats and gets nowhere with its jobs."""

import math
from dataclasses import dataclass
from typing import Final

import trio

from inferd.ipc import (
    Embedded,
    Failed,
    FromWorker,
    Paused,
    Scored,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.job import SAMPLE_BYTES, Media

OWED_S: Final = 30.0
"""Seconds of sound that may come before a worker has to say a word about them: whisper's
window. With less it may wait for more, and so for a client who says nothing for a while."""


@dataclass(slots=True)
class _Sound:
    """An open medium."""

    owed_bytes: float
    """That there have to be before anything is."""
    n_bytes: int
    heard_bytes: int = 0
    """Of these, what there was at the worker's last word."""
    is_last: bool = False
    runs: bool = False

    @property
    def is_owed(self) -> bool:
        """Whether the worker has to get on with it."""
        n_unheard = self.n_bytes - self.heard_bytes
        return self.runs and (self.is_last or n_unheard >= self.owed_bytes)


class Pulse:
    """When a worker last said a word, and when it last got on with what it runs.

    Of the jobs that run, one has to get on: what waits in the worker for others is not
    told apart from what it has forgotten. A job that waits for more sound need not, nor one
    that is paused.

    Args:
        now: seconds, on trio's clock, as all times here.
    """

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._got_on_at = now
        self._running: set[int] = set()  # those that have to get on
        self._sounds: dict[int, _Sound] = {}

    def asked(self, ticket: int, medium: Media) -> None:
        """Note that a job with an open medium is to be prepared."""
        owed_bytes = OWED_S * SAMPLE_BYTES * medium.sample_rate
        self._sounds[ticket] = _Sound(owed_bytes, medium.n_bytes)

    def appended(self, ticket: int, n_bytes: int, now: float, *, is_last: bool) -> None:
        """Note how much there is of an open medium by now, in all."""
        if (sound := self._sounds.get(ticket)) is not None:
            sound.n_bytes = n_bytes
            sound.is_last |= is_last
            self._weigh(ticket, sound, now)

    def began(self, ticket: int, now: float) -> None:
        """Note that a job is to run."""
        if (sound := self._sounds.get(ticket)) is not None:
            sound.runs = True
            self._weigh(ticket, sound, now)
        else:
            self._add(ticket, now)

    def _rest(self, ticket: int) -> None:
        """Note that a job stands still until it is to run again."""
        self._running.discard(ticket)
        if (sound := self._sounds.get(ticket)) is not None:
            sound.runs = False

    def is_over(self, ticket: int) -> None:
        """Note that nothing more is wanted of a job, if it ran."""
        self._running.discard(ticket)
        self._sounds.pop(ticket, None)

    def _weigh(self, ticket: int, sound: _Sound, now: float) -> None:
        if sound.is_owed:
            self._add(ticket, now)
        else:
            self._running.discard(ticket)

    def _add(self, ticket: int, now: float) -> None:
        if not self._running:
            self._got_on_at = now
        self._running.add(ticket)

    def _heard_of(self, ticket: int, now: float) -> None:
        self._got_on_at = now
        if (sound := self._sounds.get(ticket)) is not None:
            sound.heard_bytes = sound.n_bytes
            self._weigh(ticket, sound, now)

    def heard(self, message: FromWorker, now: float) -> None:
        """Note a word of the worker's: answers to prompts come from another thread."""
        self._heard_at = now
        match message:
            case Step(ended=ended):
                self._got_on_at = now
                for end in ended:
                    self.is_over(end.ticket)
            case Embedded(is_last=False):
                self._got_on_at = now
            case Transcribed(ticket=ticket):
                self._heard_of(ticket, now)
            case Paused(ticket=ticket):
                self._got_on_at = now
                self._rest(ticket)
            case (
                Embedded(ticket=ticket)
                | Scored(ticket=ticket)
                | TranscriptEnded(ticket=ticket)
            ):
                self._got_on_at = now
                self.is_over(ticket)
            case Failed(ticket=ticket) if ticket in self._running:
                self._got_on_at = now
                self.is_over(ticket)
            case _:
                pass

    def deadline(self, silence_s: float) -> float:
        """Tell when it counts as hung, unless something is heard before."""
        return silence_s + min(
            self._heard_at, self._got_on_at if self._running else math.inf
        )

    async def run_out(self, silence_s: float) -> str:
        """Wait until it hangs; give the reason. One task instead of a deadline a message.

        Args:
            silence_s: seconds that it may be silent, or run jobs and get nowhere.
        """
        self._heard_at = trio.current_time()
        while (  # noqa: ASYNC110  # an event a message is what this avoids
            deadline := self.deadline(silence_s)
        ) > trio.current_time():
            await trio.sleep_until(deadline)
        if self._heard_at + silence_s > trio.current_time():
            return f"hung: no progress for {silence_s:g} s"
        return no_word(silence_s)


def no_word(silence_s: float) -> str:
    """Say that a worker was silent for too long."""
    return f"hung: no word for {silence_s:g} s"
