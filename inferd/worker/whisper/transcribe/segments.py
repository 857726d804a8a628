"""Buffer of transcribed segments on their way to the daemon."""

import math
from collections.abc import Iterable

from inferd.ipc.worker import Segment, Transcribed
from inferd.wire.responses import Logprob
from inferd.worker.whisper.transcribe.inference import Piece, TextToken


class SegmentBuffer:
    """Buffer of segments with monotonic times that stay within the audio.

    whisper.cpp estimates its times: a segment may end after the audio does, or after the
    next segment begins. So times are clipped.

    Args:
        ticket: the job's number.
        max_tokens: limit on tokens of the whole text; ``None`` for no limit.
        wants_logprobs: whether segments have those of their tokens.
    """

    def __init__(
        self, ticket: int, max_tokens: int | None, *, wants_logprobs: bool = False
    ) -> None:
        self._wants_logprobs = wants_logprobs
        self._ticket = ticket
        self._max_tokens = max_tokens
        self._segments: list[Segment] = []
        self._n_sent = 0
        self.n_tokens = 0
        self.end_ms = 0
        """End of the last piece, counted from the beginning of the audio."""
        self.n_bytes_read = 0
        """Bytes at the beginning of the audio that are not needed any more."""

    @property
    def is_full(self) -> bool:
        """Whether ``max_tokens`` is reached."""
        return self._max_tokens is not None and self.n_tokens >= self._max_tokens

    @property
    def has_unsent(self) -> bool:
        """Whether there are segments that were not taken."""
        return bool(self._segments)

    def add(self, piece: Piece, *, first_ms: int, audio_ms: int) -> None:
        """Add the next piece, cut at ``max_tokens``.

        Args:
            piece: transcribed text.
            first_ms: origin of its times.
            audio_ms: length of the audio.
        """
        text, n_tokens = piece.text, len(piece.tokens)
        if self._max_tokens is not None and n_tokens > self._max_tokens - self.n_tokens:
            n_tokens = self._max_tokens - self.n_tokens
            text = b"".join(token.text for token in piece.tokens[:n_tokens])
        if not text:
            return
        start_ms = min(max(piece.start_ms + first_ms, self.end_ms), audio_ms)
        self.end_ms = max(start_ms, min(piece.end_ms + first_ms, audio_ms))
        self.n_tokens += n_tokens
        self._segments.append(
            Segment(
                text=text,
                start_ms=start_ms,
                end_ms=self.end_ms,
                no_speech=piece.no_speech,
                logprobs=_logprobs(piece.tokens[:n_tokens])
                if self._wants_logprobs
                else [],
            )
        )

    def take(self, partial: Segment | None = None) -> Transcribed:
        """Take the segments that were not taken yet, as a message."""
        segments, self._segments = self._segments, []
        n_tokens, self._n_sent = self.n_tokens - self._n_sent, self.n_tokens
        return Transcribed(
            ticket=self._ticket,
            segments=segments,
            n_tokens=n_tokens,
            partial=partial,
            n_bytes_read=self.n_bytes_read,
        )


def _logprobs(tokens: Iterable[TextToken]) -> list[Logprob]:
    return [
        Logprob(
            token=token.text.decode(errors="replace"),
            id=token.id,
            bytes=[*token.text],
            logprob=math.log(token.probability),
            top_logprobs=[],
        )
        for token in tokens
    ]
