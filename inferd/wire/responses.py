"""What the daemon may answer on an inference socket."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.errors import ErrorCode
from inferd.wire.speech import TranscriptionFacts

StopReason = Literal["end", "length", "cancelled", "error"]
StopReasonV2 = Literal[
    "end_turn", "max_tokens", "tool_use", "stop_sequence", "cancelled", "error"
]
CacheMiss = Literal["off", "no_prefix", "window", "state", "no_room", "lost"]
"""Why no token of a prompt was in the cache: it was not to be used; nothing of this user
begins alike; what does has lost the cells before its window; it cannot be cut; there was
no room to copy it; it did not come back from host memory."""
Vectors = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "items": {"type": "array", "items": {"type": "number"}},
        }
    ),
]
"""Arrays of numbers as JSON: the worker writes them, and nobody here looks into them."""


# --- what a generation cost -------------------------------------------------------------


class Usage(Struct, frozen=True):
    """What a v1 generation cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Tokens of the prompt that a cache held."""
    drafted_tokens: int | UnsetType = UNSET
    """Tokens that were guessed ahead of the model, where any were."""
    accepted_tokens: int | UnsetType = UNSET
    """Of those, the ones that turned out right."""


class UsageV2(Struct, frozen=True):
    """What a v2 generation cost, in tokens."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Tokens of the input that a cache held."""
    drafted_tokens: int | UnsetType = UNSET
    """Tokens that were guessed ahead of the model, where any were."""
    accepted_tokens: int | UnsetType = UNSET
    """Of those, the ones that turned out right."""


class Guesses(Struct, frozen=True, kw_only=True):
    """Tokens that were guessed ahead of the model."""

    drafted_tokens: int = 0
    accepted_tokens: int = 0
    """Those that turned out right."""

    def __add__(self, other: "Guesses") -> "Guesses":
        return Guesses(
            drafted_tokens=self.drafted_tokens + other.drafted_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
        )


class Timing(Struct, frozen=True, kw_only=True):
    """When it happened: durations in milliseconds, moments in nanoseconds.

    The moments are of the wall clock since 1970, and larger than the 53 bits that a
    double holds exactly.
    """

    queued_ms: float
    """From arrival to the start of the run."""
    prefill_ms: float
    """From the start to the first token."""
    first_token_ms: float
    """From arrival to the first token."""
    decode_ms: float
    """From the first token to the end."""
    total_ms: float
    """From arrival to the end."""
    tokens_per_second: float
    """Tokens after the first over the time they took; 0 where there is none."""
    arrived_ns: int
    started_ns: int
    finished_ns: int
    paused_ms: float | UnsetType = UNSET
    """That it waited for other users after its start, if it did; part of the others."""


# --- v1 ---------------------------------------------------------------------------------


class TokenFrame(Struct, frozen=True, kw_only=True, tag="token", tag_field="type"):
    """A piece of the answer."""

    id: str
    content: str


class DoneFrame(Struct, frozen=True, kw_only=True, tag="done", tag_field="type"):
    """The end of an answer; ``content`` is all of it, streamed or not."""

    id: str
    content: str
    usage: Usage
    stop_reason: StopReason
    backend: str
    """Its configured name; empty if the request was cancelled before one was chosen."""
    seed: int | UnsetType = UNSET
    """The sampler's."""
    timing: Timing | UnsetType = UNSET
    structure_complete: bool | UnsetType = UNSET
    """With a structure or a call that was asked for: whether it is closed."""
    cache_miss: CacheMiss | UnsetType = UNSET
    """Where nothing of the prompt was in the cache: why."""


# --- v2 ---------------------------------------------------------------------------------


class Alternative(Struct, frozen=True, kw_only=True):
    """A token, and how likely the model found it."""

    token: str
    """Its text; characters split over tokens show as U+FFFD."""
    id: int
    bytes: list[int]
    """Its text, exactly."""
    logprob: float
    """Natural logarithm of its probability, before any sampling option."""


class Logprob(Alternative, frozen=True, kw_only=True):
    """The token that was chosen, and the likeliest there were."""

    top_logprobs: list[Alternative]


class TextDelta(Struct, frozen=True, tag="text", tag_field="type"):
    """A piece of the visible answer."""

    delta: str
    start_ms: int | UnsetType = UNSET
    """In a transcription: when it was said, from the sound's beginning."""
    end_ms: int | UnsetType = UNSET
    no_speech: float | UnsetType = UNSET
    """In a transcription: 0 to 1, how likely nobody speaks there."""


class ThinkingDelta(Struct, frozen=True, tag="thinking", tag_field="type"):
    """A piece of the reasoning trace."""

    delta: str


class ToolCall(Struct, frozen=True, tag="tool_use", tag_field="type"):
    """A whole call of a tool."""

    tool_call_id: str
    name: str
    input: Annotated[object, Meta(description="Any JSON value.")]


class BlockFrame(Struct, frozen=True, kw_only=True, tag="frame", tag_field="type"):
    """A piece of the answer, of one type."""

    id: str
    block: TextDelta | ThinkingDelta | ToolCall
    logprobs: list[Logprob] | UnsetType = UNSET
    """With text, if asked for: the tokens it is made of."""


class AnswerWarning(Struct, frozen=True, kw_only=True):
    """Something about the answer that the client should know."""

    code: Literal["tool_call_malformed"]
    raw: str
    """The text that it is about, which went out as text."""


class BlocksDone(Struct, frozen=True, kw_only=True, tag="done", tag_field="type"):
    """The end of a v2 answer."""

    id: str
    usage: UsageV2
    stop_reason: StopReasonV2
    backend: str
    """Its configured name; empty if the request was cancelled before one was chosen."""
    seed: int | UnsetType = UNSET
    """The sampler's."""
    timing: Timing | UnsetType = UNSET
    stop_sequence: str | UnsetType = UNSET
    """The string of ``stop`` that was found."""
    stop_token_id: int | UnsetType = UNSET
    """The token of ``stop_token_ids`` that was chosen."""
    detail: Literal["deadline"] | UnsetType = UNSET
    """With ``cancelled``: why."""
    structure_complete: bool | UnsetType = UNSET
    """With a structure or a call that was asked for: whether it is closed."""
    cache_miss: CacheMiss | UnsetType = UNSET
    """Where nothing of the prompt was in the cache: why."""
    warnings: list[AnswerWarning] | UnsetType = UNSET
    transcription: TranscriptionFacts | UnsetType = UNSET
    """Where speech was written down."""


# --- embeddings and scores --------------------------------------------------------------


class EncodeUsage(Struct, frozen=True):
    """What embeddings or scores cost, in tokens."""

    input_tokens: int


class EmbeddingsFrame(
    Struct, frozen=True, kw_only=True, tag="embeddings", tag_field="type"
):
    """One vector for each input, in order."""

    id: str
    embeddings: Vectors
    dimensions: int
    """Length of every vector."""
    model: str
    usage: EncodeUsage
    backend: str


class RankedDocument(Struct, frozen=True):
    """A document's place in the request, and its score."""

    index: int
    score: float


class RerankFrame(Struct, frozen=True, kw_only=True, tag="rerank", tag_field="type"):
    """Documents by score, the best first."""

    id: str
    results: list[RankedDocument]
    model: str
    usage: EncodeUsage
    backend: str


# --- every socket -----------------------------------------------------------------------


class ProgressFrame(Struct, frozen=True, kw_only=True, tag="status", tag_field="type"):
    """How far a request is that asked to be told, or that is still being sent."""

    id: str
    status: Literal["queued", "prefill", "partial"]
    position: int | UnsetType = UNSET
    """With ``queued``: 1 for the next to run."""
    processed: int | UnsetType = UNSET
    """With ``prefill``: tokens of the prompt that are read."""
    total: int | UnsetType = UNSET
    """With ``prefill``: tokens of the prompt."""
    text: str | UnsetType = UNSET
    """With ``partial``: what is heard and may still change."""
    start_ms: int | UnsetType = UNSET
    """With ``partial``: when it was said, from the sound's beginning."""
    end_ms: int | UnsetType = UNSET


class ErrorFrame(Struct, frozen=True, kw_only=True, tag="error", tag_field="type"):
    """The end of a request that failed."""

    id: str
    code: ErrorCode
    message: str
    prompt_tokens: int | UnsetType = UNSET
    """With a context overflow: tokens of the prompt."""
    n_ctx: int | UnsetType = UNSET
    """With a context overflow: tokens one request may take."""
    tokens_over: int | UnsetType = UNSET
    """With a context overflow: tokens to drop."""
    at_least: bool | UnsetType = UNSET
    """With a context overflow: true if the prompt was not counted to its end."""
    queue_depth: int | UnsetType = UNSET
    """With ``queue_full``: requests that wait."""
    retry_after_ms: int | UnsetType = UNSET
    """With ``queue_full``: milliseconds after which there may be a place."""


TextResponse = TokenFrame | DoneFrame | ProgressFrame | ErrorFrame
BlocksResponse = BlockFrame | BlocksDone | ProgressFrame | ErrorFrame
EmbedResponse = EmbeddingsFrame | ErrorFrame
RerankResponse = RerankFrame | ErrorFrame
Response = TextResponse | BlocksResponse | EmbedResponse | RerankResponse
Terminal = DoneFrame | BlocksDone | EmbeddingsFrame | RerankFrame | ErrorFrame
