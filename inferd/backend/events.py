"""The events that a backend's streams yield."""

from msgspec import Struct

from inferd.wire.responses import Logprob, StopReason, StopReasonV2, Usage, UsageV2


class Token(Struct, frozen=True):
    """A piece of the answer, as text."""

    text: str


class Done(Struct, frozen=True, kw_only=True):
    """The end of a v1 stream that did not fail."""

    stop_reason: StopReason
    usage: Usage
    structure_complete: bool | None = None
    """Whether the structure asked for is closed; ``None`` where none was asked for."""


class Progress(Struct, frozen=True):
    """Progress of the prompt; only for a job that wants it."""

    processed: int
    """Tokens processed."""
    total: int


class PausedPosition(Struct, frozen=True):
    """The queue position of a job that is paused; only for a job that wants progress.

    A job that has not started yet has no events: its position comes from the queue.
    """

    position: int
    """1 for the next request to run or to continue."""


TokenEvent = Token | Progress | PausedPosition | Done


class Span(Struct, frozen=True, kw_only=True):
    """A time span in milliseconds from the audio's beginning."""

    start_ms: int
    end_ms: int
    no_speech: float | None = None
    """0 to 1: the probability that the span contains no speech."""


class Text(Struct, frozen=True):
    """A piece of the visible answer."""

    delta: str
    logprobs: tuple[Logprob, ...] = ()
    """Of its tokens, if they were requested."""
    span: Span | None = None
    """Set in a transcription."""
    token_ids: tuple[int, ...] = ()
    """Of its tokens, if they were requested."""


class Partial(Struct, frozen=True):
    """Provisional text of a transcription."""

    text: str
    span: Span


class AudioRead(Struct, frozen=True):
    """The first bytes of an open medium are not needed any more."""

    n_bytes: int


class Transcription(Struct, frozen=True, kw_only=True):
    """Facts about a finished transcription."""

    language: str
    """The language's code."""
    language_probability: float | None
    """0 to 1, if the language was detected."""
    audio_ms: int
    computing_ms: int

    @property
    def real_time_factor(self) -> float:
        """Processing time per second of audio."""
        return round(self.computing_ms / self.audio_ms, 4) if self.audio_ms else 0.0


class Thinking(Struct, frozen=True):
    """A piece of the reasoning trace."""

    delta: str
    token_ids: tuple[int, ...] = ()
    """Of its tokens, if they were requested."""


class ToolUse(Struct, frozen=True, kw_only=True):
    """A complete tool call."""

    tool_call_id: str
    name: str
    input: object
    token_ids: tuple[int, ...] = ()
    """Of its tokens, if they were requested."""


class MalformedToolCall(Struct, frozen=True):
    """A malformed tool call, which is sent as text."""

    raw: str


class DoneV2(Struct, frozen=True, kw_only=True):
    """The end of a v2 stream that did not fail."""

    stop_reason: StopReasonV2
    usage: UsageV2
    stop_sequence: str | None = None
    """The stop string that was found."""
    stop_token_id: int | None = None
    """The stop token that was sampled."""
    token_ids: tuple[int, ...] = ()
    """If they were requested: of the tokens that no event had."""
    end_token_id: int | None = None
    """If ids were requested: the token that ended the answer, if one did."""
    structure_complete: bool | None = None
    """Whether the structure asked for is closed; ``None`` where none was asked for."""
    warnings: tuple[MalformedToolCall, ...] = ()
    transcription: Transcription | None = None
    """Set for a transcription."""


TokenEventV2 = (
    Text | Thinking | ToolUse | Progress | PausedPosition | Partial | AudioRead | DoneV2
)
