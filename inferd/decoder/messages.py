"""What the daemon and a process that reads lines say to each other, as msgpack.

Each message has its length before it, four bytes, little endian. Behind the daemon's come the
bytes of the line, behind the answer its sections. The process speaks first: it tells what
holds it in.
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from inferd import errors
from inferd.errors import InferdError, InternalError
from inferd.ipc import Boxed
from inferd.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.speech import AppendLine

Kind = Literal["text", "blocks", "embed", "rerank"]
"""What requests on a surface are."""

LENGTH_BYTES: Final = 4


class Ask(Struct, frozen=True, kw_only=True):
    """Read a line."""

    kind: Kind
    n_bytes: int
    """Of the line, which follows."""
    seed: int
    """Drawn for it, in case it names none."""
    owner: int
    """The user who asks."""
    marker: str = ""
    """Drawn for it, to stand in texts where images and sound do."""
    n_fds: int = 0
    """Descriptors that came with it."""


class Failure(Struct, frozen=True):
    """Why a line or a request is refused."""

    name: str
    """Of the class in ``errors``."""
    text: str


class Request(Struct, frozen=True, kw_only=True):
    """A line that is a request: without what is large of it."""

    text: GenerateRequest | None = None
    blocks: BlocksRequest | None = None
    embed: EmbedRequest | None = None
    rerank: RerankRequest | None = None
    facts: dict[str, int] = {}
    """What the log says of it."""
    refusal: Failure | None = None
    """Why it cannot be served as it stands; there is no job then."""
    job: GenerateJob | EmbedJob | RerankJob | None = None
    transcription: TranscribeJob | None = None
    needs: list[list[str | int]] = []
    priority: int = 0
    deadline_ms: int | None = None
    streams: bool = True


class Answer(Struct, frozen=True, kw_only=True):
    """What a line is: one of these."""

    failure: Failure | None = None
    """It is none."""
    cancel: str | None = None
    """The id of what is to be cancelled."""
    append: AppendLine | None = None
    request: Request | None = None
    sections: list[int] = []
    """Bytes of what follows: of a request its job's content, and the text of each attachment
    that has any; of an append its text."""


def failure_of(error: InferdError, *, most_chars: int) -> Failure:
    """Write a failure down."""
    return Failure(type(error).__name__, str(error)[:most_chars])


def error_of(failure: Failure) -> InferdError:
    """Make an error of a failure; one that nobody knows is a bug."""
    kind = getattr(errors, failure.name, None)
    if isinstance(kind, type) and issubclass(kind, errors.PeerError):
        return kind(failure.text)
    return InternalError("a large line could not be read")


ANSWER: Final = msgspec.msgpack.Decoder(Answer)
BOXED: Final = msgspec.msgpack.Decoder(Boxed)
ASK: Final = msgspec.msgpack.Decoder(Ask)
ENCODER: Final = msgspec.msgpack.Encoder()


def framed(message: Boxed | Ask | Answer) -> bytes:
    """Write a message with its length."""
    data = ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data
