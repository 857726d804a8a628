"""What the daemon and a worker say to each other; ``pipe`` makes bytes of it.

A worker that lies is killed, a daemon that lies is a bug.
"""

from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from inferd.backend import Reuse
from inferd.capabilities import BackendCapabilities, Count
from inferd.config import BackendSettings
from inferd.fit import Demand, Share
from inferd.job import Job
from inferd.limits import (
    HEARTBEAT_S,
    IPC_ITEMS_MAX,
    MAX_RERANK_DOCUMENTS,
    VOCABULARY_MAX_BYTES,
)
from inferd.wire.responses import Guesses, Logprob, StopReason, Usage
from inferd.wire.status import Phase

Ticket = Annotated[int, Meta(ge=0)]
"""The daemon's number for a job."""
Words = Annotated[str, Meta(max_length=1024 * 1024)]
"""What a worker says in words: a name, a path, a reason with what it quotes."""
T = TypeVar("T")
Items = Annotated[list[T], Meta(max_length=IPC_ITEMS_MAX)]
"""What a worker lists: its length is looked at before anything in it is decoded."""


# --- daemon to worker ---------------------------------------------------------


class Load(Struct, frozen=True, kw_only=True, tag=True):
    """Load the model; the first message, sent once."""

    settings: BackendSettings
    """As configured, with the model's path made absolute."""
    n_slots: int
    """Jobs that are to run at once, if there is memory for them."""
    heartbeat_s: float = HEARTBEAT_S
    """Seconds between signs of life."""
    crashed: tuple[str, ...] = ()
    """Variants of the library's CPU code that are not to be used again."""


class Prepare(Struct, frozen=True, kw_only=True, tag=True):
    """Tokenise what a job reads; answered by ``PromptReady``, ``Refused`` or ``Overflow``.

    With its first byte go the descriptors of the job's media, in their order.
    """

    ticket: int
    job: Job
    content: Raw | UnsetType = UNSET
    """What the job lacks: its turns or its texts; the last of the message's fields, so that
    it can be sent without a copy."""


class Run(Struct, frozen=True, kw_only=True, tag=True):
    """Start a prepared job; answered by ``Step`` messages, ``Embedded`` or ``Scored``."""

    ticket: int


class Drop(Struct, frozen=True, kw_only=True, tag=True):
    """Forget a job, prepared or running; no answer, though some may be on their way."""

    ticket: int


class Append(Struct, frozen=True, kw_only=True, tag=True):
    """There is more of a job's open medium, in the file that came with its ``Prepare``."""

    ticket: int
    n_bytes: int
    """From the beginning, those before included."""
    is_last: bool = False
    """Nothing more will come."""


class Pause(Struct, frozen=True, kw_only=True, tag=True):
    """Have a job stand still and free its slot; answered by ``Paused``, unless it ends."""

    ticket: int


class Resume(Struct, frozen=True, kw_only=True, tag=True):
    """Go on with a job that is paused."""

    ticket: int


class Spell(Struct, frozen=True, kw_only=True, tag=True):
    """Tell the model's vocabulary; answered by ``Spelt``, once."""


ToWorker = Load | Share | Prepare | Run | Append | Pause | Resume | Drop | Spell


# --- worker to daemon ---------------------------------------------------------


class Loading(Struct, frozen=True, kw_only=True, tag=True):
    """Where the worker is on its way to ready; also a sign of life."""

    phase: Phase
    path: Words = ""
    n_ctx: Count = 0


class Variant(Struct, frozen=True, kw_only=True, tag=True):
    """The library's code for this processor; it is loaded next, and may not survive it."""

    name: Words
    lower: Words = ""
    """What is to be tried after a crash; empty if there is nothing else."""


class Boxed(Struct, frozen=True, kw_only=True, tag=True):
    """What holds the worker in from here on, before it runs native code."""

    landlock: Count = 0
    """The kernel's version of it; 0 where files are not kept off."""
    seccomp: bool = False
    """Whether all system calls are kept off that are on no list."""
    is_open: bool = False
    """Files are not meant to be kept off: the backend needs an accelerator's devices."""
    missing: Annotated[tuple[Words, ...], Meta(max_length=IPC_ITEMS_MAX)] = ()
    """What is not to be had here, and why."""

    @property
    def is_whole(self) -> bool:
        """Whether all that is meant to be kept off is."""
        return self.seccomp and (self.landlock > 0 or self.is_open) and not self.missing


class LoadFailed(Struct, frozen=True, kw_only=True, tag=True):
    """The worker cannot serve and ends: ``LoadError`` says which line is for whom."""

    reason: Words
    whole: Words = ""


class Loaded(Struct, frozen=True, kw_only=True, tag=True):
    """The model is loaded and has decoded its self-test."""

    capabilities: BackendCapabilities
    library: Words
    """The native library and its version, for ``doctor``."""
    marker_tokens: Annotated[frozenset[bytes], Meta(max_length=IPC_ITEMS_MAX)] = (
        frozenset()
    )
    """Pieces of the family's markers, no text: left out where none are looked for."""
    facts: bytes = b""
    """How the model wants its prompts: for the process that writes them, and nobody else.
    Empty where nothing is to be written."""


class Spelt(Struct, frozen=True, kw_only=True, tag=True):
    """The model's vocabulary: for the process that tries grammars, and nobody else."""

    words: Annotated[bytes, Meta(max_length=VOCABULARY_MAX_BYTES)]


class Alive(Struct, frozen=True, kw_only=True, tag=True):
    """A sign of life from the decode loop; none of any job's getting on."""


class PromptReady(Struct, frozen=True, kw_only=True, tag=True):
    """A job's prompt fits, or all of its texts do."""

    ticket: Ticket
    prompt_tokens: Count
    open_thought: Words = ""
    """The marker of the thought that the prompt ends inside, if any."""


class Refused(Struct, frozen=True, kw_only=True, tag=True):
    """A job cannot be served."""

    ticket: Ticket
    reason: Words


class Overflow(Struct, frozen=True, kw_only=True, tag=True):
    """A job's prompt does not fit."""

    ticket: Ticket
    prompt_tokens: Count
    n_ctx: Count
    at_least: bool = False
    """Whether the prompt may have more tokens than these."""


class Started(Struct, frozen=True, kw_only=True):
    """A job has its slot."""

    ticket: Ticket
    reuse: Reuse


class Ended(Struct, frozen=True, kw_only=True):
    """How a job's run ended."""

    ticket: Ticket
    stop_reason: StopReason
    usage: Usage
    stop_token_id: int | None = None
    """The job's own stop token that was chosen."""
    structure_complete: bool | None = None
    """Whether the structure asked for is closed; ``None`` where none was asked for."""


class Step(Struct, frozen=True, kw_only=True, tag=True):
    """What one decode step gave: pieces of all its sequences, and those that ended."""

    started: Items[Started] = []
    pieces: Items[tuple[Ticket, bytes]] = []
    """One for each token, though some are empty."""
    logprobs: Items[tuple[Ticket, Logprob]] = []
    """Of these tokens, in their order, for the jobs that want them."""
    prefilled: Items[tuple[Ticket, Count]] = []
    """Tokens of the prompt that are read, for the jobs that want to know."""
    guessed: Items[tuple[Ticket, Guesses]] = []
    """What was guessed of answers, and how much of it came true."""
    ended: Items[Ended] = []
    n_read: Count = 0
    """Tokens of prompts or texts: the jobs get on, if there is nothing else to tell."""


class Embedded(Struct, frozen=True, kw_only=True, tag=True):
    """An embed job's vectors, or the next ones of them."""

    ticket: Ticket
    embeddings: bytes
    """An array of arrays of numbers, as JSON, once those of all messages are joined."""
    dimensions: Count
    is_last: bool = True


class Scored(Struct, frozen=True, kw_only=True, tag=True):
    """A rerank job's scores, one for each document."""

    ticket: Ticket
    scores: Annotated[list[float], Meta(max_length=MAX_RERANK_DOCUMENTS)]


class Segment(Struct, frozen=True, kw_only=True):
    """Some words that were heard, and when: milliseconds from the sound's beginning."""

    text: bytes
    """UTF-8; a character may be split over two."""
    start_ms: Count
    end_ms: Count
    no_speech: float | None = None
    """0 to 1: how likely nobody speaks there."""


class Transcribed(Struct, frozen=True, kw_only=True, tag=True):
    """What a transcribe job has heard; also that it gets on."""

    ticket: Ticket
    segments: Items[Segment] = []
    """That will not change any more, in order."""
    n_tokens: Count = 0
    """They are made of."""
    partial: Segment | None = None
    """What may change yet, from there on."""
    n_bytes_read: Count = 0
    """From the sound's beginning: not needed any more."""


class TranscriptEnded(Struct, frozen=True, kw_only=True, tag=True):
    """How a transcribe job's run ended."""

    ticket: Ticket
    stop_reason: StopReason
    usage: Usage
    language: Words
    """Its code."""
    language_probability: float | None = None
    """Where it was found out."""
    audio_ms: Count
    """Of the sound, as far as it was heard."""
    computing_ms: Count
    """That the library took for it."""


class Paused(Struct, frozen=True, kw_only=True, tag=True):
    """A job stands still and has no slot any more."""

    ticket: Ticket


class Silent(Struct, frozen=True, kw_only=True, tag=True):
    """A job does nothing until its open medium has ended, or has so many bytes in all."""

    ticket: Ticket
    until_bytes: Annotated[int, Meta(ge=0, le=2**53)]


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """A job came to nothing."""

    ticket: Ticket
    reason: Words
    by_request: bool = False
    """Whether that is the request's own doing."""


FromWorker = (
    Boxed
    | Loading
    | Variant
    | Demand
    | LoadFailed
    | Loaded
    | Alive
    | Spelt
    | PromptReady
    | Refused
    | Overflow
    | Step
    | Embedded
    | Scored
    | Transcribed
    | TranscriptEnded
    | Paused
    | Silent
    | Failed
)
