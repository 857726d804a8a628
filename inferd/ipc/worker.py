"""Messages between the daemon and a worker; ``encoding`` turns them into bytes.

A worker that breaks the protocol is killed; a daemon that does has a bug.
"""

from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.backend.capabilities import BackendCapabilities, Count
from inferd.backend.interface import CacheReuse
from inferd.backend.job import Job
from inferd.config.settings import BackendSettings
from inferd.limits.engine import HEARTBEAT_S, IPC_ITEMS_MAX, VOCABULARY_MAX_BYTES
from inferd.limits.protocol import MAX_RERANK_DOCUMENTS
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.wire.responses import DraftCounts, Logprob, StopReason, Usage
from inferd.wire.status import Phase

Ticket = Annotated[int, Meta(ge=0)]
"""The daemon's number for a job."""
BoundedText = Annotated[str, Meta(max_length=1024 * 1024)]
"""Text from a worker: a name, a path, a reason with its quotations."""
T = TypeVar("T")
BoundedList = Annotated[list[T], Meta(max_length=IPC_ITEMS_MAX)]
"""A list from a worker: its length is checked before an item is decoded."""


# --- daemon to worker ---------------------------------------------------------


class _LoadOptions(Struct, frozen=True, kw_only=True):
    n_slots: int
    """Jobs that are to run at once, if there is memory for them."""
    heartbeat_s: float = HEARTBEAT_S
    """Seconds between heartbeats."""
    crashed_variants: tuple[str, ...] = ()
    """Variants of the library's CPU code that are not to be used again."""
    is_outline: bool = False
    """Whether to read headers alone: ``Loaded`` says what the model can do, then it exits."""
    asks_remote: bool = False
    """Whether to ask a remote engine for its models alone: ``Loaded`` has the configured one."""
    lists_models: bool = False
    """Whether to ask it so, and have ``Loaded`` list the names."""
    pulls_model: str = ""
    """The model that a remote engine is to bring to itself."""


class Load(_LoadOptions, frozen=True, kw_only=True, tag=True):
    """Load the model; the first message, sent once."""

    settings: BackendSettings
    """As configured, with the model's path made absolute."""


class ReceivedLoad(_LoadOptions, frozen=True, kw_only=True, tag="Load"):
    """A ``Load`` as it is received: only the program of its kind knows the settings."""

    settings: Raw


class Prepare(Struct, frozen=True, kw_only=True, tag=True):
    """Tokenise a job; answered by ``PromptReady``, ``Refused`` or ``PromptOverflow``.

    The descriptors of the job's media, in their order, are sent with its first byte.
    """

    ticket: int
    job: Job
    content: Raw | UnsetType = UNSET
    """The large part of the job; the last field, so that it can be sent without a copy."""


class Run(Struct, frozen=True, kw_only=True, tag=True):
    """Start a prepared job; answered by ``Step`` messages, ``Embedded`` or ``Scored``."""

    ticket: int


class Drop(Struct, frozen=True, kw_only=True, tag=True):
    """Drop a job, prepared or running; no reply, though results may be on their way."""

    ticket: int


class Append(Struct, frozen=True, kw_only=True, tag=True):
    """There is more of a job's open medium, in the file that came with its ``Prepare``."""

    ticket: int
    n_bytes: int
    """Total length of the file."""
    is_last: bool = False
    """Whether the medium is complete."""


class Pause(Struct, frozen=True, kw_only=True, tag=True):
    """Pause a job and free its slot; answered by ``Paused``, unless the job ends."""

    ticket: int


class Resume(Struct, frozen=True, kw_only=True, tag=True):
    """Resume a paused job."""

    ticket: int


class GetTokenTable(Struct, frozen=True, kw_only=True, tag=True):
    """Send the model's vocabulary; answered by ``TokenTableReply``, once."""


AfterLoad = MemoryShare | Prepare | Run | Append | Pause | Resume | Drop | GetTokenTable
ToWorker = Load | AfterLoad
"""A message that is sent."""
ReceivedByWorker = ReceivedLoad | AfterLoad
"""A message that was received."""


# --- worker to daemon ---------------------------------------------------------


class Loading(Struct, frozen=True, kw_only=True, tag=True):
    """The phase of the load; also a sign of life."""

    phase: Phase
    path: BoundedText = ""
    n_ctx: Count = 0
    told: BoundedText = ""  # by a remote engine, of a model that it pulls


class CpuVariant(Struct, frozen=True, kw_only=True, tag=True):
    """The variant of the library's CPU code that is opened or loaded next, and may crash."""

    name: BoundedText
    fallback: BoundedText = ""
    """The variant to try after a crash; empty if there is none."""
    is_asked: bool = False
    """Whether it is only asked for its score: the next worker has yet to choose another."""


class SandboxReport(Struct, frozen=True, kw_only=True, tag=True):
    """The state of a process's sandbox, sent before it runs native code."""

    landlock: Count = 0
    """The kernel's Landlock version; 0 if files are not restricted."""
    seccomp: bool = False
    """Whether system calls are restricted to a list."""
    files_unrestricted: bool = False
    """Whether files are unrestricted on purpose, for an accelerator's devices."""
    missing: Annotated[tuple[BoundedText, ...], Meta(max_length=IPC_ITEMS_MAX)] = ()
    """Missing parts of the sandbox, with reasons."""

    @property
    def is_complete(self) -> bool:
        """Whether all intended restrictions are in place."""
        has_files = self.landlock > 0 or self.files_unrestricted
        return self.seccomp and has_files and not self.missing

    def log_fields(self) -> dict[str, object]:
        """Return the fields of the log events ``worker.boxed`` and ``decoder.boxed``."""
        return {
            "landlock": self.landlock,
            "seccomp": self.seccomp,
            "is_open": self.files_unrestricted,
            "missing": self.missing,
        }


class LoadFailed(Struct, frozen=True, kw_only=True, tag=True):
    """The worker cannot serve and exits; ``LoadError`` documents the fields."""

    reason: BoundedText
    detail: BoundedText = ""
    is_broken_file: bool = False
    is_changed_file: bool = False


class Loaded(Struct, frozen=True, kw_only=True, tag=True):
    """The model is loaded and has passed its self-test."""

    capabilities: BackendCapabilities
    library: BoundedText
    """The native library and its version, for ``doctor``."""
    marker_tokens: Annotated[frozenset[bytes], Meta(max_length=IPC_ITEMS_MAX)] = (
        frozenset()
    )
    """Pieces of the dialect's marker tokens; v1 answers omit them."""
    prompt_format: bytes = b""
    """How the model wants its prompts, for the preparer alone; empty if none are rendered."""
    remote_models: BoundedList[BoundedText] = []
    """With ``lists_models``: the names that a remote engine tells."""


class TokenTableReply(Struct, frozen=True, kw_only=True, tag=True):
    """The model's vocabulary, for the preparer alone."""

    token_table: Annotated[bytes, Meta(max_length=VOCABULARY_MAX_BYTES)]


class Heartbeat(Struct, frozen=True, kw_only=True, tag=True):
    """A sign of life from the decode loop; no evidence of progress."""


class PromptReady(Struct, frozen=True, kw_only=True, tag=True):
    """A job's prompt fits, or all of its texts do."""

    ticket: Ticket
    prompt_tokens: Count
    is_estimate: bool = False
    """Whether the tokens are estimated, which those of a remote engine are."""
    open_thought: BoundedText = ""
    """The marker of the reasoning that the prompt ends inside, if any."""


class Refused(Struct, frozen=True, kw_only=True, tag=True):
    """A job cannot be served."""

    ticket: Ticket
    reason: BoundedText


class PromptOverflow(Struct, frozen=True, kw_only=True, tag=True):
    """A job's prompt does not fit."""

    ticket: Ticket
    prompt_tokens: Count
    n_ctx: Count
    at_least: bool = False
    """Whether the prompt may have more tokens than these."""


class Started(Struct, frozen=True, kw_only=True):
    """A job has got a slot."""

    ticket: Ticket
    reuse: CacheReuse


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a generate job."""

    ticket: Ticket
    stop_reason: StopReason
    usage: Usage
    stop_token_id: int | None = None
    """The job's own stop token, if one was sampled."""
    end_token_id: int | None = None
    """The token that ended the answer, if one did."""
    structure_complete: bool | None = None
    """Whether the requested structure is complete; ``None`` if none was requested."""


class Step(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The results of one decode step for all its sequences."""

    started: BoundedList[Started] = []
    pieces: BoundedList[tuple[Ticket, bytes]] = []
    """One for each token; some are empty."""
    token_ids: BoundedList[tuple[Ticket, Count]] = []
    logprobs: BoundedList[tuple[Ticket, Logprob]] = []
    """Of these tokens, in their order, for the jobs that want them, as the ids are."""
    prefilled: BoundedList[tuple[Ticket, Count]] = []
    """Tokens of the prompt that are processed, for the jobs that want to know."""
    drafted: BoundedList[tuple[Ticket, DraftCounts]] = []
    """Counts of drafted and accepted tokens."""
    ended: BoundedList[Ended] = []
    n_read: Count = 0
    """Tokens of prompts or texts: evidence of progress if there is no other."""


class Embedded(Struct, frozen=True, kw_only=True, tag=True):
    """An embed job's vectors, or the next ones of them."""

    ticket: Ticket
    embeddings: bytes
    """A part of a JSON array of arrays of numbers, which all messages make whole."""
    dimensions: Count
    is_last: bool = True
    n_tokens: Count | None = None
    """With the last: tokens of all texts, by a remote's count; ``None`` for those told before."""


class Scored(Struct, frozen=True, kw_only=True, tag=True):
    """A rerank job's scores, one for each document."""

    ticket: Ticket
    scores: Annotated[list[float], Meta(max_length=MAX_RERANK_DOCUMENTS)]
    n_tokens: Count | None = None
    """Tokens of all texts, by a remote's count; ``None`` for those told before."""


class Segment(Struct, frozen=True, kw_only=True):
    """A segment of a transcript, with times in milliseconds from the audio's beginning."""

    text: bytes
    """UTF-8; a character may be split over two segments."""
    start_ms: Count
    end_ms: Count
    no_speech: float | None = None
    """0 to 1: the probability that the segment contains no speech."""
    logprobs: BoundedList[Logprob] = []
    """Of its tokens, if the job wants them; they have no alternatives."""


class Transcribed(Struct, frozen=True, kw_only=True, tag=True):
    """New parts of a transcript; also evidence of progress."""

    ticket: Ticket
    segments: BoundedList[Segment] = []
    """Final segments, in order."""
    n_tokens: Count = 0
    """Tokens of the segments."""
    partial: Segment | None = None
    """Provisional text after the segments."""
    n_bytes_read: Count = 0
    """Bytes from the audio's beginning that are no longer needed; 0 if not reported."""


class TranscriptEnded(Struct, frozen=True, kw_only=True, tag=True):
    """The end of a transcribe job."""

    ticket: Ticket
    stop_reason: StopReason
    usage: Usage
    language: BoundedText
    """The language's code."""
    language_probability: float | None = None
    """0 to 1, if the language was detected."""
    audio_ms: Count
    """Duration of the processed audio."""
    computing_ms: Count
    """Time that the library took for it."""


class Paused(Struct, frozen=True, kw_only=True, tag=True):
    """A job is paused and has no slot any more."""

    ticket: Ticket


class AudioNeeded(Struct, frozen=True, kw_only=True, tag=True):
    """A job waits until its open medium is complete, or has so many bytes in all."""

    ticket: Ticket
    until_bytes: Annotated[int, Meta(ge=0, le=2**53)]


class Overflow(Struct, frozen=True, kw_only=True):
    """A remote's context is too small for a job."""

    prompt_tokens: Count
    answer_tokens: Count
    """That it reserves for the answer."""
    n_ctx: Count


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """A job failed."""

    ticket: Ticket
    reason: BoundedText
    by_request: bool = False
    """Whether the request is the cause."""
    is_unavailable: bool = False
    """Whether a remote engine is the cause: the worker is in order."""
    retry_after_ms: Count | None = None
    """With ``is_unavailable``: milliseconds after which it may be in order, by its own word."""
    overflow: Overflow | None = None
    """If the job does not fit into the remote's context."""


class Availability(Struct, frozen=True, kw_only=True, tag=True):
    """Whether the worker's remote engine is asked anything."""

    unavailable: BoundedText = ""  # why not; empty if it is
    retry_after_ms: Count = 0  # milliseconds until it is tried again


FromWorker = (
    SandboxReport
    | Loading
    | CpuVariant
    | MemoryDemand
    | LoadFailed
    | Loaded
    | Heartbeat
    | TokenTableReply
    | PromptReady
    | Refused
    | PromptOverflow
    | Step
    | Embedded
    | Scored
    | Transcribed
    | TranscriptEnded
    | Paused
    | AudioNeeded
    | Failed
    | Availability
)
