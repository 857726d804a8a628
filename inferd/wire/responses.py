"""Responses on the inference sockets."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.errors import ErrorCode
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.speech import TranscriptionFacts
from inferd.wire.status import Phase

StopReason = Literal["end", "length", "cancelled", "error"]
StopReasonV2 = Literal[
    "end_turn", "max_tokens", "tool_use", "stop_sequence", "cancelled", "error"
]
CacheMiss = Literal["off", "no_prefix", "window", "state", "no_room", "lost"]
"""Reason why no token of a prompt was in the cache: the cache was off; no entry of this user
has a common prefix; the entry lost the cells before its sliding window; its state cannot be
cut back; there was no space to copy it; it was lost in host memory."""
Vectors = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "items": {"type": "array", "items": {"type": "number"}},
        }
    ),
]
"""Arrays of numbers as JSON, encoded by the worker and passed on without decoding."""


# --- bases ------------------------------------------------------------------------------


class Response(Struct, frozen=True, kw_only=True):
    """Base of the frames of all inference sockets."""

    id: str


class TerminalFrame(Response, frozen=True, kw_only=True):
    """Base of the frames that end an answer: there is one in each, the last."""


# --- usage ------------------------------------------------------------------------------


class Usage(Struct, frozen=True):
    """Token counts of a v1 generation."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Tokens of the prompt that were in the cache."""
    drafted_tokens: int | UnsetType = UNSET
    """Tokens drafted by speculative decoding, if any were."""
    accepted_tokens: int | UnsetType = UNSET
    """Drafted tokens that the model accepted."""
    is_estimate: Literal[True] | UnsetType = UNSET
    """Present if a remote engine counted nothing, and the numbers are estimated."""


class UsageV2(Struct, frozen=True):
    """Token counts of a v2 generation."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Tokens of the input that were in the cache."""
    drafted_tokens: int | UnsetType = UNSET
    """Tokens drafted by speculative decoding, if any were."""
    accepted_tokens: int | UnsetType = UNSET
    """Drafted tokens that the model accepted."""
    is_estimate: Literal[True] | UnsetType = UNSET
    """Present if a remote engine counted nothing, and the numbers are estimated."""


class DraftCounts(Struct, frozen=True, kw_only=True):
    """Token counts of speculative decoding."""

    drafted_tokens: int = 0
    accepted_tokens: int = 0
    """Drafted tokens that the model accepted."""

    def __add__(self, other: "DraftCounts") -> "DraftCounts":
        return DraftCounts(
            drafted_tokens=self.drafted_tokens + other.drafted_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
        )


class Timing(Struct, frozen=True, kw_only=True):
    """Times of a request; the ``_ns`` fields exceed the 53 bits of a double."""

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
    """Tokens after the first ones divided by ``decode_ms``; 0 if there are none. Those that
    came at once with the first, as a grammar may give no choice of them, are first ones."""
    arrived_ns: int
    started_ns: int
    finished_ns: int
    paused_ms: float | UnsetType = UNSET
    """Milliseconds for which it was paused for other users, if it was; the other times
    include them."""


# --- v1 ---------------------------------------------------------------------------------


class TokenFrame(Response, frozen=True, kw_only=True, tag="token", tag_field="type"):
    """A part of the answer."""

    content: str


class DoneFrame(TerminalFrame, frozen=True, kw_only=True, tag="done", tag_field="type"):
    """The end of an answer; ``content`` is the whole answer, streamed or not."""

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
    """A token and its log probability."""

    token: str
    """The token's text; parts of characters split over tokens are U+FFFD."""
    id: int
    bytes: list[int]
    """The bytes of the token's text."""
    logprob: float
    """Natural logarithm of its probability, before any sampling option."""


class Logprob(Alternative, frozen=True, kw_only=True):
    """The chosen token and the most likely alternatives."""

    top_logprobs: list[Alternative]


class TextDelta(Struct, frozen=True, tag="text", tag_field="type"):
    """A part of the visible answer."""

    delta: str
    start_ms: int | UnsetType = UNSET
    """In a transcription: start of the text, from the beginning of the audio."""
    end_ms: int | UnsetType = UNSET
    no_speech: float | UnsetType = UNSET
    """In a transcription: probability that nobody speaks there, 0 to 1."""


class ThinkingDelta(Struct, frozen=True, tag="thinking", tag_field="type"):
    """A part of the reasoning trace."""

    delta: str


class ToolCall(Struct, frozen=True, tag="tool_use", tag_field="type"):
    """A complete tool call."""

    tool_call_id: str
    name: str
    input: Annotated[object, Meta(description="Any JSON value.")]


class BlockFrame(Response, frozen=True, kw_only=True, tag="frame", tag_field="type"):
    """A part of the answer, of one type."""

    block: TextDelta | ThinkingDelta | ToolCall
    logprobs: list[Logprob] | UnsetType = UNSET
    """With text, if requested: the tokens of the text."""
    token_ids: list[int] | UnsetType = UNSET
    """If requested: the ids of the tokens of this part, of those that begin in it, and of the
    markers before it."""


class AnswerWarning(Struct, frozen=True, kw_only=True):
    """A warning about the answer."""

    code: Literal["tool_call_malformed"]
    raw: str
    """The text of the call. It was sent as text, unless ``max_tokens`` cut a forced call."""


class BlocksDone(
    TerminalFrame, frozen=True, kw_only=True, tag="done", tag_field="type"
):
    """The end of a v2 answer."""

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
    token_ids: list[int] | UnsetType = UNSET
    """If requested: the ids of the answer's tokens that no frame had: of text that was
    withheld, and of markers."""
    end_token_id: int | UnsetType = UNSET
    """If ids are requested: the token that ended the answer, if one did. It is no part of
    the answer, and not counted in ``usage``."""
    detail: Literal["deadline"] | UnsetType = UNSET
    """With ``cancelled``: the reason."""
    structure_complete: bool | UnsetType = UNSET
    """With a structure or a call that was asked for: whether it is closed."""
    cache_miss: CacheMiss | UnsetType = UNSET
    """Where nothing of the prompt was in the cache: why."""
    warnings: list[AnswerWarning] | UnsetType = UNSET
    transcription: TranscriptionFacts | UnsetType = UNSET
    """With a transcription: facts about it."""


# --- embeddings and scores --------------------------------------------------------------


class EncodeUsage(Struct, frozen=True):
    """Token count of embeddings or scores."""

    input_tokens: int
    is_estimate: Literal[True] | UnsetType = UNSET
    """Present if a remote engine counted nothing, and the number is estimated."""


class EmbeddingsFrame(
    TerminalFrame, frozen=True, kw_only=True, tag="embeddings", tag_field="type"
):
    """One vector per input, in order."""

    embeddings: Vectors
    dimensions: int
    """Length of every vector."""
    model: str
    usage: EncodeUsage
    backend: str


class RankedDocument(Struct, frozen=True):
    """A document's index in the request, and its score."""

    index: int
    score: float


class RerankFrame(
    TerminalFrame, frozen=True, kw_only=True, tag="rerank", tag_field="type"
):
    """Documents by score, best first."""

    results: list[RankedDocument]
    model: str
    usage: EncodeUsage
    backend: str


# --- models ----------------------------------------------------------------------------


class ModelsFrame(
    TerminalFrame, frozen=True, kw_only=True, tag="models", tag_field="type"
):
    """The answer to ``describe``: the models that requests on this socket may ask for."""

    models: list[OfferedFacts]
    """In configured order, then those of the store that no request has named yet."""
    omitted: int | UnsetType = UNSET
    """How many further models were left out, if any."""


# --- every socket -----------------------------------------------------------------------


class ProgressFrame(
    Response, frozen=True, kw_only=True, tag="status", tag_field="type"
):
    """Progress of a request that asked for it, or whose audio is still sent."""

    status: Literal["queued", "loading", "prefill", "partial"]
    position: int | UnsetType = UNSET
    """With ``queued``: 1 for the next to run."""
    phase: Phase | UnsetType = UNSET
    """With ``loading``: the step of loading the model."""
    backend: str | UnsetType = UNSET
    """With ``loading``: name of the backend whose model is loaded."""
    processed: int | UnsetType = UNSET
    """With ``prefill``: tokens of the prompt processed so far."""
    total: int | UnsetType = UNSET
    """With ``prefill``: tokens of the prompt."""
    text: str | UnsetType = UNSET
    """With ``partial``: transcribed text that may still change."""
    start_ms: int | UnsetType = UNSET
    """With ``partial``: start of the text, from the beginning of the audio."""
    end_ms: int | UnsetType = UNSET


class ErrorFrame(
    TerminalFrame, frozen=True, kw_only=True, tag="error", tag_field="type"
):
    """The end of a request that failed."""

    code: ErrorCode
    message: str
    prompt_tokens: int | UnsetType = UNSET
    """With a context overflow: tokens of the prompt."""
    n_ctx: int | UnsetType = UNSET
    """With a context overflow: tokens one request may take."""
    tokens_over: int | UnsetType = UNSET
    """With a context overflow: tokens to remove."""
    at_least: bool | UnsetType = UNSET
    """With a context overflow: true if the prompt was not counted to its end."""
    queue_depth: int | UnsetType = UNSET
    """With ``queue_full``, unless connections or descriptors are too many: requests that
    wait."""
    retry_after_ms: int | UnsetType = UNSET
    """With ``queue_full`` of the request queue, if it can be estimated: milliseconds until a
    request may be accepted."""
    models: list[str] | UnsetType = UNSET
    """With ``model_not_found``: names of models that can do what is asked, 32 at most."""
    described: list[OfferedFacts] | UnsetType = UNSET
    """With ``model_not_found``, where the request asks for it: facts about these models, of
    which each is one entry whatever names it has."""


TextResponse = TokenFrame | DoneFrame | ProgressFrame | ModelsFrame | ErrorFrame
BlocksResponse = BlockFrame | BlocksDone | ProgressFrame | ModelsFrame | ErrorFrame
EmbedResponse = EmbeddingsFrame | ModelsFrame | ErrorFrame
RerankResponse = RerankFrame | ModelsFrame | ErrorFrame
