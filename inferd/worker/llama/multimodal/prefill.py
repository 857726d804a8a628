"""Decode media in prompts: embeddings in place of tokens, chunk by chunk."""

import time
from collections.abc import Collection
from typing import Final, NamedTuple

from inferd.ipc.worker import Failed
from inferd.limits.worker import MEDIA_WAIT_S, PREFILL_CHUNK_TOKENS
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.model.batch import VectorBatch
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.multimodal.projector_thread import ProjectorThread
from inferd.worker.llama.multimodal.prompt_spans import MediaSpan

__all__ = ["MediaPrefill", "MediaPrefillStep"]

_NO_TICKET: Final = -1


class MediaPrefillStep(NamedTuple):
    """A number of rows of a sequence's media chunk to decode next."""

    sequence: RunningSequence
    n_tokens: int


class MediaPrefill:
    """Prefill of running prompts' media, from the projector to the context.

    Only the decoding thread calls it, except for ``drop``.

    Args:
        context: the context to decode in.
        projector_thread: the thread that encodes media.
    """

    def __init__(
        self, context: LlamaContext, projector_thread: ProjectorThread
    ) -> None:
        self._context = context
        self._projector_thread = projector_thread
        self._batch = VectorBatch(PREFILL_CHUNK_TOKENS)
        self._last = _NO_TICKET

    def begin(self, sequence: RunningSequence) -> None:
        """Submit the media of a prompt that are neither decoded nor encoded."""
        unread = {
            each.chunk
            for each in sequence.prepared.spans
            if each.end > sequence.n_cached and each.chunk.vectors is None
        }
        media = [
            each
            for each in sequence.prepared.media
            if unread.intersection(each.media_chunks)
        ]
        job = sequence.job
        self._projector_thread.submit(
            sequence.ticket, job.owner, media, keeps=job.cache == "auto"
        )

    def drop(self, ticket: int) -> None:
        """Remove a job and abort its encoding; any thread may call."""
        self._projector_thread.drop(ticket)

    def cancel_queued(self, ticket: int) -> None:
        """Remove a paused job's queued media; the one being encoded continues."""
        self._projector_thread.cancel_queued(ticket)

    def wait(self) -> bool:
        """Wait up to ``MEDIA_WAIT_S`` for encoded media; true if encoding made progress."""
        return self._projector_thread.wait(MEDIA_WAIT_S)

    def failures(self, running: Collection[RunningSequence]) -> list[Failed]:
        """Return failures of the jobs whose media could not be encoded."""
        return [
            Failed(ticket=each.ticket, reason=span.chunk.failure, by_request=True)
            for each in running
            if (span := each.span) and span.chunk.failure
        ]

    def choose(
        self, running: Collection[RunningSequence], chunk_sizer: ChunkSizer
    ) -> MediaPrefillStep | None:
        """Choose the next chunk to decode, round-robin; ``None`` if none is encoded yet.

        Args:
            running: all running sequences.
            chunk_sizer: limits the tokens per step, except for atomic chunks.
        """
        ready = [
            (each, span)
            for each in running
            if (span := each.span) and span.chunk.vectors is not None
        ]
        if not ready:
            return None
        sequence, span = min(ready, key=self._order)
        n_left = span.end - sequence.n_cached
        chunk_sizer.depth = sequence.n_cached
        is_alone = all(each.is_prefilling for each in running)
        n_most = chunk_sizer.chunk_alone if is_alone else chunk_sizer.chunk
        return MediaPrefillStep(
            sequence, n_left if span.chunk.is_atomic else min(n_left, n_most)
        )

    def decode(self, step: MediaPrefillStep, chunk_sizer: ChunkSizer) -> int:
        """Decode a step; return llama.cpp's code: 0 for success, 2 if interrupted.

        Args:
            step: the chosen step.
            chunk_sizer: records how long it took.
        """
        sequence, n_tokens = step
        span = sequence.span
        assert span is not None  # noqa: S101  # by ``choose``
        assert span.chunk.vectors is not None  # noqa: S101  # likewise
        self._last = sequence.ticket
        first = sequence.n_cached - span.begin
        # With a grid ``first`` is 0, since the chunk is atomic.
        positions = span.chunk.positions(sequence.position - first)
        began_at = time.perf_counter()
        for begin in range(first, first + n_tokens, PREFILL_CHUNK_TOKENS):
            end = min(begin + PREFILL_CHUNK_TOKENS, first + n_tokens)
            self._batch.fill(
                span.chunk.vectors[begin:end],
                positions=positions[:, begin:end],
                sequence=sequence.slot,
            )
            if code := self._decode(span):
                return code
        chunk_sizer.observe(n_tokens, time.perf_counter() - began_at)
        return 0

    def _decode(self, span: MediaSpan) -> int:
        if span.chunk.is_causal:
            return self._context.decode(self._batch.handle)
        return self._context.decode_non_causal(self._batch.handle)

    def _order(self, ready: tuple[RunningSequence, MediaSpan]) -> tuple[bool, int]:
        ticket = ready[0].ticket
        return ticket <= self._last, ticket
