"""What the daemon and a process that reads lines say to each other, as msgpack.

Each message has its length before it, four bytes, little endian. Behind the daemon's come the
bytes of the line, behind the answer its sections. The process speaks first: it tells what
holds it in.
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from inferd import errors
from inferd.decoder.limits import MAX_HEAD_BYTES
from inferd.errors import InferdError, InternalError
from inferd.ipc import Boxed
from inferd.job import EmbedJob, GenerateJob, RerankJob, TranscribeJob
from inferd.limits import MAX_IPC_MESSAGE_BYTES, MAX_RERANK_BYTES
from inferd.routing import need_of
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.speech import AppendLine

Kind = Literal["text", "blocks", "embed", "rerank"]
"""What requests on a surface are."""

LENGTH_BYTES: Final = 4

FACTS: Final = frozenset(("n_attachments", "n_tools", "n_inputs", "n_documents"))
"""What the log may be told of a request."""


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
    if (
        isinstance(kind, type)
        and issubclass(kind, errors.PeerError)
        and "__init__" not in vars(kind)  # made of its text alone
    ):
        return kind(failure.text)
    return InternalError("a large line could not be read")


def most_bytes(ask: Ask) -> int:
    """Tell how long an answer may be: documents of a request for scores are a part of it."""
    return MAX_HEAD_BYTES + (MAX_RERANK_BYTES if ask.kind == "rerank" else 0)


def makes_sense(ask: Ask, answer: Answer) -> bool:
    """Tell whether an answer is one that a line of this kind can have.

    What a process says that somebody else's line has taken over is not believed further
    than that: it may be wrong, and it may not be what the daemon cannot go on with.
    """
    parts = (answer.failure, answer.cancel, answer.append, answer.request)
    if (
        sum(part is not None for part in parts) != 1
        or min(answer.sections, default=0) < 0
    ):
        return False
    n_sections = len(answer.sections)
    if sum(answer.sections) > MAX_IPC_MESSAGE_BYTES + ask.n_bytes:
        return False
    if answer.request is not None:
        return _is_of(ask, answer.request, n_sections)
    if answer.append is not None:
        return ask.kind == "blocks" and n_sections == 1
    return n_sections == 0


def _is_of(ask: Ask, request: Request, n_sections: int) -> bool:
    read: dict[Kind, tuple[object, type[GenerateJob | EmbedJob | RerankJob]]] = {
        "text": (request.text, GenerateJob),
        "blocks": (request.blocks, GenerateJob),
        "embed": (request.embed, EmbedJob),
        "rerank": (request.rerank, RerankJob),
    }
    there = [name for name, (light, _) in read.items() if light is not None]
    if there != [ask.kind] or not FACTS.issuperset(request.facts):
        return False
    job, speech = request.job, request.transcription
    if request.refusal is not None:
        return job is None and speech is None and n_sections == 0
    n_texts = len(request.blocks.attachments) if request.blocks else 0
    return (
        isinstance(job, read[ask.kind][1])
        and n_sections == 1 + n_texts
        and _is_owned(ask, job)
        and (speech is None or speech.owner == ask.owner)
        and all(map(_is_need, request.needs))
    )


def _is_owned(ask: Ask, job: object) -> bool:
    """Tell whether what is kept for a job is its own user's."""
    return not isinstance(job, GenerateJob) or job.owner == ask.owner


def _is_need(words: list[str | int]) -> bool:
    try:
        need_of(words)
    except ValueError:
        return False
    return True


ANSWER: Final = msgspec.msgpack.Decoder(Answer)
BOXED: Final = msgspec.msgpack.Decoder(Boxed)
ASK: Final = msgspec.msgpack.Decoder(Ask)
ENCODER: Final = msgspec.msgpack.Encoder()


def framed(message: Boxed | Ask | Answer) -> bytes:
    """Write a message with its length."""
    data = ENCODER.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data
