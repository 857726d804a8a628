"""A line that another process has read: what it is, and what its request comes to."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from msgspec import Raw
from msgspec.structs import replace

from inferd.decoder.messages import Ask, Kind, Request as ReadRequest, error_of
from inferd.errors import InferdError, InternalError, PeerError
from inferd.job import EmbedJob, GenerateJob, RerankJob
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.resolve.plan import J, Plan
from inferd.resolve.sampling import SEED_MAX
from inferd.routing import need_of
from inferd.server.decoding import Decoded, Decoders
from inferd.server.limits import MARKER_BYTES
from inferd.server.long_lines import LongLine
from inferd.server.peer import Peer
from inferd.wire.blocks import Attachment, BlocksRequest, UnknownAttachment
from inferd.wire.codec import Request
from inferd.wire.speech import AppendLine

KINDS: Final[Mapping[str, Kind]] = {
    INFER_SOCKET: "text",
    INFER_V2_SOCKET: "blocks",
    EMBED_SOCKET: "embed",
    RERANK_SOCKET: "rerank",
}

AnyPlan: TypeAlias = Plan[GenerateJob] | Plan[EmbedJob] | Plan[RerankJob]
Resolved: TypeAlias = AnyPlan | InferdError


class Found(NamedTuple):
    """What a line is: a cancel, an append or a request."""

    cancel: str = ""
    append: AppendLine | None = None
    request: Request | None = None
    resolved: Resolved | None = None
    """What the request comes to, or why it is refused."""
    facts: Mapping[str, int] = MappingProxyType({})


def resolved_or(resolved: Resolved | None, resolve: Callable[[], Plan[J]]) -> Plan[J]:
    """Give what a request comes to, where that is not known yet by resolving it.

    Raises:
        InferdError: it is refused.
    """
    match resolved:
        case None:
            return resolve()
        case InferdError():
            raise resolved
        case _:
            return cast("Plan[J]", resolved)


async def find(
    decoders: Decoders, line: LongLine, *, socket: str, peer: Peer, n_fds: int
) -> Found | PeerError:
    """Have a long line read; give what it is, or why nobody can tell.

    Args:
        decoders: read it.
        line: of a client.
        socket: the leaf of the one that it came by.
        peer: the client.
        n_fds: descriptors that came with it.
    """
    ask = Ask(
        kind=KINDS[socket],
        n_bytes=line.n_bytes,
        seed=secrets.randbelow(SEED_MAX + 1),
        owner=peer.owner,
        marker=secrets.token_hex(MARKER_BYTES),
        n_fds=n_fds,
    )
    try:
        return _found(await decoders.read(ask, line.parts, user=peer.user))
    except PeerError as error:
        return error.with_traceback(None)  # else the line is held by its frames


def _found(decoded: Decoded) -> Found:
    answer, sections = decoded
    if answer.failure is not None:
        error = error_of(answer.failure)
        raise error if isinstance(error, PeerError) else PeerError(error.message)
    if answer.append is not None:
        line = answer.append
        [text] = sections
        return Found(append=replace(line, bytes=_as_text(text)) if text else line)
    if answer.request is not None:
        return _request(answer.request, sections)
    return Found(cancel=answer.cancel or "")


def _request(read: ReadRequest, sections: Sequence[bytearray]) -> Found:
    request = read.text or read.blocks or read.embed or read.rerank
    if read.refusal is not None:
        return Found(request=request, resolved=error_of(read.refusal), facts=read.facts)
    content, *texts = sections
    if isinstance(request, BlocksRequest):
        request = replace(request, attachments=_whole(request, texts))
    return Found(request=request, resolved=_plan(read, content), facts=read.facts)


def _whole(request: BlocksRequest, texts: Sequence[bytearray]) -> list[Attachment]:
    """Put the texts of attachments in their places: bytes, as they are only ASCII."""
    return [
        replace(each, bytes=_as_text(text))
        if text and not isinstance(each, UnknownAttachment)
        else each
        for each, text in zip(request.attachments, texts, strict=True)
    ]


def _as_text(text: bytearray) -> str:
    """Take base64 for the text that it is: it is sliced and decoded, and nothing else."""
    return cast("str", text)


def _plan(read: ReadRequest, content: bytearray) -> Resolved:
    job = read.job
    if isinstance(job, GenerateJob | EmbedJob):
        job = replace(job, content=Raw(content))
    if job is None:
        return InternalError("a large line came to nothing")
    return cast(
        "AnyPlan",
        Plan(
            job=job,
            transcription=read.transcription,
            needs=tuple(need_of(each) for each in read.needs),
            priority=read.priority,
            deadline_ms=read.deadline_ms,
            streams=read.streams,
        ),
    )
