"""What has been heard of a sound, as it is told."""

from inferd.ipc import Segment, Transcribed
from inferd.worker.whisper.listening import Piece


class Transcript:
    """Collects pieces; times never go back, and never beyond the sound.

    whisper.cpp's are its guesses: an end may lie beyond that of the sound, or beyond the
    next beginning.

    Args:
        ticket: the job's number.
        max_tokens: of the whole text; ``None`` for as many as there are.
    """

    def __init__(self, ticket: int, max_tokens: int | None) -> None:
        self._ticket = ticket
        self._max_tokens = max_tokens
        self._segments: list[Segment] = []
        self._n_told = 0
        self.n_tokens = 0
        self.end_ms = 0
        """Where the last piece ends, counted from the sound's beginning."""
        self.n_bytes_read = 0
        """Of the sound, from its beginning: not needed any more."""

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another token."""
        return self._max_tokens is not None and self.n_tokens >= self._max_tokens

    @property
    def has_news(self) -> bool:
        """Whether there is anything that was not told."""
        return bool(self._segments)

    def add(self, piece: Piece, *, first_ms: int, audio_ms: int) -> None:
        """Take the next piece, or as much of it as there is room for.

        Args:
            piece: that was heard.
            first_ms: where its times are counted from.
            audio_ms: of the sound.
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
            )
        )

    def take(self, partial: Segment | None = None) -> Transcribed:
        """Give what has not been told yet."""
        segments, self._segments = self._segments, []
        n_tokens, self._n_told = self.n_tokens - self._n_told, self.n_tokens
        return Transcribed(
            ticket=self._ticket,
            segments=segments,
            n_tokens=n_tokens,
            partial=partial,
            n_bytes_read=self.n_bytes_read,
        )
