"""Read media that stand in prompts: vectors in place of tokens, a part at a time."""

import time
from collections.abc import Collection
from typing import Final, NamedTuple

from inferd.ipc import Failed
from inferd.worker.limits import MEDIA_WAIT_S, PREFILL_CHUNK_TOKENS
from inferd.worker.llama.batch import VectorBatch
from inferd.worker.llama.context import Context
from inferd.worker.llama.pace import Pace
from inferd.worker.llama.projecting import Projecting
from inferd.worker.llama.sequence import Sequence
from inferd.worker.llama.spans import Span

__all__ = ["Look", "Looking"]

_NOBODY: Final = -1


class Look(NamedTuple):
    """What is read next of a medium."""

    sequence: Sequence
    n_tokens: int


class Looking:
    """Takes the media of running prompts from the projector to the context.

    Only the thread that decodes calls it, but for ``interrupt``.

    Args:
        context: to decode in.
        projecting: that makes media readable.
    """

    def __init__(self, context: Context, projecting: Projecting) -> None:
        self._context = context
        self._projecting = projecting
        self._batch = VectorBatch(PREFILL_CHUNK_TOKENS)
        self._last = _NOBODY

    def begin(self, sequence: Sequence) -> None:
        """Have made readable what a prompt needs that is not in the cache."""
        unread = {
            each.clip
            for each in sequence.prepared.spans
            if each.end > sequence.n_cached and each.clip.vectors is None
        }
        media = [
            each for each in sequence.prepared.media if unread.intersection(each.clips)
        ]
        job = sequence.job
        self._projecting.begin(
            sequence.ticket, job.owner, media, keeps=job.cache == "auto"
        )

    def drop(self, ticket: int) -> None:
        """Forget a job; any thread may, to cut short what is computed for it."""
        self._projecting.drop(ticket)

    def rest(self, ticket: int) -> None:
        """Begin with no more media of a job that stands still; what is computed goes on."""
        self._projecting.rest(ticket)

    def wait(self) -> bool:
        """Wait a moment for something readable; tell whether that is getting on."""
        return self._projecting.wait(MEDIA_WAIT_S)

    def failures(self, running: Collection[Sequence]) -> list[Failed]:
        """Give the jobs whose media cannot be made readable."""
        return [
            Failed(ticket=each.ticket, reason=span.clip.failure, by_request=True)
            for each in running
            if (span := each.span) and span.clip.failure
        ]

    def choose(self, running: Collection[Sequence], pace: Pace) -> Look | None:
        """Choose what is read next, in turn; nothing if nothing is readable yet.

        Args:
            running: all that run.
            pace: how much is read at once, but for what can only be read as a whole.
        """
        ready = [
            (each, span)
            for each in running
            if (span := each.span) and span.clip.vectors is not None
        ]
        if not ready:
            return None
        sequence, span = min(ready, key=self._turn)
        n_left = span.end - sequence.n_cached
        is_alone = all(each.is_prefilling for each in running)
        n_most = pace.chunk_alone if is_alone else pace.chunk
        return Look(sequence, n_left if span.clip.is_whole else min(n_left, n_most))

    def decode(self, look: Look, pace: Pace) -> int:
        """Decode it; give llama.cpp's code: 0 is well, 2 is interrupted.

        Args:
            look: what was chosen.
            pace: told how long it took.
        """
        sequence, n_tokens = look
        span = sequence.span
        assert span is not None  # noqa: S101  # it was chosen
        assert span.clip.vectors is not None  # noqa: S101  # for that
        self._last = sequence.ticket
        first = sequence.n_cached - span.begin
        # In a grid this is where the part begins: it is read as a whole.
        positions = span.clip.positions(sequence.position - first)
        began_at = time.perf_counter()
        for begin in range(first, first + n_tokens, PREFILL_CHUNK_TOKENS):
            end = min(begin + PREFILL_CHUNK_TOKENS, first + n_tokens)
            self._batch.fill(
                span.clip.vectors[begin:end],
                positions=positions[:, begin:end],
                sequence=sequence.slot,
            )
            if code := self._decode(span):
                return code
        pace.observe(n_tokens, time.perf_counter() - began_at)
        return 0

    def _decode(self, span: Span) -> int:
        if span.clip.is_causal:
            return self._context.decode(self._batch.handle)
        return self._context.decode_together(self._batch.handle)

    def _turn(self, ready: tuple[Sequence, Span]) -> tuple[bool, int]:
        ticket = ready[0].ticket
        return ticket <= self._last, ticket
