"""What happens in an answer: the events that a backend's streams yield."""

from msgspec import Struct

from inferd.wire.responses import Logprob, StopReason, StopReasonV2, Usage, UsageV2


class Token(Struct, frozen=True):
    """A piece of the answer, as text."""

    text: str


class Done(Struct, frozen=True, kw_only=True):
    """The end of a stream that did not fail."""

    stop_reason: StopReason
    usage: Usage
    structure_complete: bool | None = None
    """Whether the structure asked for is closed; ``None`` where none was asked for."""


class Progress(Struct, frozen=True):
    """How far the prompt is; only for a job that wants it."""

    processed: int
    """Tokens read."""
    total: int


class Queued(Struct, frozen=True):
    """It has been paused, and waits for its turn; only for a job that wants to know."""

    position: int
    """1 for the next to go on."""


TokenEvent = Token | Progress | Queued | Done


class Span(Struct, frozen=True, kw_only=True):
    """When something was said: milliseconds from the sound's beginning."""

    start_ms: int
    end_ms: int
    no_speech: float | None = None
    """0 to 1: how likely nobody speaks there."""


class Text(Struct, frozen=True):
    """A piece of the visible answer."""

    delta: str
    logprobs: tuple[Logprob, ...] = ()
    """Of the tokens it is made of, if they were asked for."""
    span: Span | None = None
    """In a transcription."""


class Partial(Struct, frozen=True):
    """What is heard and may still change."""

    text: str
    span: Span


class AudioRead(Struct, frozen=True):
    """So many bytes of an open medium, from its beginning, are not needed any more."""

    n_bytes: int


class Transcription(Struct, frozen=True, kw_only=True):
    """What a transcription was made of."""

    language: str
    """Its code."""
    language_probability: float | None
    """Where it was found out."""
    audio_ms: int
    computing_ms: int

    @property
    def real_time_factor(self) -> float:
        """Tell how long a second of the sound took."""
        return round(self.computing_ms / self.audio_ms, 4) if self.audio_ms else 0.0


class Thinking(Struct, frozen=True):
    """A piece of the reasoning trace."""

    delta: str


class ToolUse(Struct, frozen=True, kw_only=True):
    """A whole tool call."""

    tool_call_id: str
    name: str
    input: object


class MalformedToolCall(Struct, frozen=True):
    """A call that could not be read, and went out as text."""

    raw: str


class DoneV2(Struct, frozen=True, kw_only=True):
    """The end of a v2 stream that did not fail."""

    stop_reason: StopReasonV2
    usage: UsageV2
    stop_sequence: str | None = None
    """The stop string that was found."""
    stop_token_id: int | None = None
    """The stop token that was chosen."""
    structure_complete: bool | None = None
    """Whether the structure asked for is closed; ``None`` where none was asked for."""
    warnings: tuple[MalformedToolCall, ...] = ()
    transcription: Transcription | None = None
    """Of speech that was written down."""


TokenEventV2 = (
    Text | Thinking | ToolUse | Progress | Queued | Partial | AudioRead | DoneV2
)
