"""The record of an API: its translations in both directions, none of which does I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.config.kinds.remote import RemoteSettings
from inferd.ipc.worker import Embedded, Ended, Scored, Transcribed, TranscriptEnded
from inferd.wire.responses import Logprob
from inferd.worker.remote.failure import RemoteError

S = TypeVar("S", bound=RemoteSettings)
S_contra = TypeVar("S_contra", bound=RemoteSettings, contravariant=True)
J = TypeVar("J", EmbedJob, RerankJob, TranscribeJob)

JSON: Final = "application/json"
SPEECH_SAMPLE_RATE: Final = 16_000
"""Hz of recordings: what models of speech take, so that clients send no more."""
WholeAnswer = Embedded | Scored | Transcribed | TranscriptEnded


class AnswerForm(Enum):
    """The media type of an answer, by which it is split into what a reader is given."""

    EVENTS = "text/event-stream"
    """Server-sent events: the data of each."""
    LINES = "application/x-ndjson"
    """Lines of JSON: each line that is not empty."""
    DOCUMENT = JSON
    """One JSON document, as a whole."""


class RemoteRequest(NamedTuple):
    """An HTTP request."""

    path: str
    """Below the remote's own path; it may have a query."""
    body: bytes
    """Empty for ``GET``; else it is sent by ``POST``."""
    form: AnswerForm
    content_type: str = JSON
    is_at_root: bool = False
    """Whether the path is below the server's root instead."""
    via: tuple[str, ...] = ()
    """The daemons that pass it on."""
    then: "Callable[[bytes], RemoteRequest] | None" = None
    """Writes the request that follows, given the document that answers this one; raises
    ``RemoteError`` for what is none. The answer to the last one is the job's."""
    when_dropped: "RemoteRequest | None" = None
    """Sent where the answer is not waited for, if the end of a connection does not tell it."""


class TokenPiece(NamedTuple):
    """A piece that is one token, for jobs that ask for log probabilities or ids."""

    piece: bytes
    logprob: Logprob | None = None
    token_id: int | None = None


Piece = bytes | TokenPiece


class StreamReader(Protocol):
    """Reads one answer, part by part."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected."""

    @property
    def n_pieces(self) -> int:
        """Parts of reasoning, text and calls so far, those that are written later included."""

    def read(self, data: bytes) -> Sequence[Piece]:
        """Read the data of an event, or a line; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """

    def finish(self) -> tuple[Sequence[Piece], Ended]:
        """Return the last pieces and the end, when the answer has ended.

        Raises:
            RemoteError: it ended in its middle.
        """


class ErrorReader(NamedTuple):
    """Reads what an API says of errors."""

    of_status: Callable[[int, Mapping[str, str], bytes, float], RemoteError]
    """Of an answer that is not 200: its status, its headers with names in lower case, its
    beginning, and the seconds since 1970."""
    of_answer: Callable[[bytes], RemoteError]
    """Of one that is 200, or of an event in it."""


@dataclass(frozen=True, kw_only=True)
class Chat(Generic[S_contra]):
    """The translation of conversations, whose answers come in parts."""

    write: Callable[[S_contra, GenerateJob, Sequence[bytes]], RemoteRequest]
    """Writes a request, given the job's images as PNG, in their order; raises
    ``RefusedError`` for what the remote cannot do."""
    make_reader: Callable[[S_contra, int, GenerateJob, int], StreamReader]
    """Makes the reader of an answer: of a ticket and its job, with an estimate of the tokens
    of its prompt."""


@dataclass(frozen=True, kw_only=True)
class Whole(Generic[S_contra, J]):
    """The translation of jobs that are answered by one document."""

    write: Callable[[S_contra, J, bytes], RemoteRequest]
    """Writes a request, given the job's recording as WAV, if it has one; raises
    ``RefusedError`` for what the remote cannot do."""
    read: Callable[[S_contra, int, J, bytes], Sequence[WholeAnswer]]
    """Reads the document of an answer: of a ticket and its job. The last message ends the job.
    Raises ``RemoteError`` for what is none."""


@dataclass(frozen=True, kw_only=True)
class Counting(Generic[S_contra]):
    """How a remote counts the tokens of a conversation without an answer to it."""

    write: Callable[[S_contra, GenerateJob], RemoteRequest | None]
    """Writes a request; ``None`` where it counts none."""
    read: Callable[[bytes], int]
    """Reads the number; raises ``RemoteError`` for what is none."""


@dataclass(frozen=True, kw_only=True)
class RemoteModels:
    """How a remote tells which models it has."""

    request: RemoteRequest
    read: Callable[[bytes], Sequence[str]]
    """Reads the names of a document; raises ``RemoteError`` for what is none."""


class RemotePullStatus(NamedTuple):
    """What a remote says of a model that it brings."""

    text: str
    is_done: bool


@dataclass(frozen=True, kw_only=True)
class RemotePull:
    """How a remote is told to bring a model to where it is."""

    write: Callable[[str], RemoteRequest]
    """Writes the request for a model's name."""
    read: Callable[[bytes], RemotePullStatus]
    """Reads a part of the answer; raises ``RemoteError`` if it failed, or the part is none."""


@dataclass(frozen=True, kw_only=True)
class RemoteApi(Generic[S_contra]):
    """An API of remote engines; what it does not have is ``None``."""

    name: str
    """For the doctor."""
    headers: Callable[[str], Mapping[str, str]]
    """The headers of each request, such as the one with the key; an empty key is none."""
    errors: ErrorReader
    capabilities: Callable[[S_contra], BackendCapabilities]
    """Says what a backend can do, as configured."""
    chat: Chat[S_contra] | None = None
    counting: Counting[S_contra] | None = None
    embed: Whole[S_contra, EmbedJob] | None = None
    rerank: Whole[S_contra, RerankJob] | None = None
    transcribe: Whole[S_contra, TranscribeJob] | None = None
    models: RemoteModels | None = None
    pull: RemotePull | None = None
    takes_sound: bool = False
    """Whether conversations may have sound."""
    takes_plain_media: bool = False
    """Whether media are pixels and samples there, too, and not PNG and WAV."""


def bearer(key: str) -> Mapping[str, str]:
    """Write the key as most servers expect it (RFC 6750)."""
    return {"Authorization": f"Bearer {key}"} if key else {}
