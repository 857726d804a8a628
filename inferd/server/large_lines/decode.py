"""Decode a large line in a child process, and convert the result."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, cast

from msgspec import Raw
from msgspec.structs import replace

from inferd.backend.job import EmbedJob, GenerateJob, Job
from inferd.errors import FrameTooLargeError, InferdError, InternalError, PeerError
from inferd.limits.server import MEDIA_MARKER_BYTES, OFFLOAD_LINE_BYTES
from inferd.line_decoder.kind import AnyLineKind
from inferd.line_decoder.messages import (
    DecodeTask,
    RequestHead,
    error_of,
)
from inferd.resolve.options import SEED_MAX
from inferd.resolve.request import J, ResolvedRequest
from inferd.routing import decode_requirement
from inferd.server.identity.peer import Peer
from inferd.server.large_lines.decoder_pool import DecoderOutput, DecoderPool
from inferd.server.large_lines.lines import LargeLine
from inferd.wire.blocks import Attachment, BlocksRequest, UnknownAttachment
from inferd.wire.requests import CancelLine, Request
from inferd.wire.speech import AppendLine

ResolveResult: TypeAlias = ResolvedRequest[Job] | InferdError


class ParsedLine(NamedTuple):
    """A decoded line: a cancel, an append or a request."""

    cancel: CancelLine | None = None
    append: AppendLine | None = None
    request: Request | None = None
    resolved: ResolveResult | None = None
    """The resolved request, or why it is refused."""
    stats: Mapping[str, int] = MappingProxyType({})


def resolved_or(
    resolved: ResolveResult | None, resolve: Callable[[], ResolvedRequest[J]]
) -> ResolvedRequest[J]:
    """Return the result of resolving a request, or resolve it if that is not done yet.

    Raises:
        InferdError: the request is refused.
    """
    match resolved:
        case None:
            return resolve()
        case InferdError():
            raise resolved
        case _:
            return cast("ResolvedRequest[J]", resolved)


def owned_by(owner: int, resolved: ResolveResult | None) -> ResolveResult | None:
    """Return the result of resolving a request as that of an owner.

    Its line was resolved as the peer's own: it says itself who asks.
    """
    if not isinstance(resolved, ResolvedRequest):
        return resolved
    job, speech = resolved.job, resolved.transcription
    if isinstance(job, GenerateJob) and job.owner != owner:
        job = replace(job, owner=owner)
        speech = None if speech is None else replace(speech, owner=owner)
        return replace(resolved, job=job, transcription=speech)
    return resolved


async def decode_line(
    decoders: DecoderPool,
    line: LargeLine,
    *,
    kind: AnyLineKind | None,
    peer: Peer,
    n_fds: int,
) -> ParsedLine | PeerError:
    """Have a large line decoded; return it, or the error where it is invalid.

    Args:
        decoders: decode it.
        line: from a client.
        kind: of the requests on its socket; ``None`` refuses the line, as to decode it
            here would take the daemon's time from other users.
        peer: the client.
        n_fds: descriptors that came with the line.
    """
    if kind is None:
        return FrameTooLargeError(
            f"the line has {line.n_bytes} bytes, "
            f"fewer than {OFFLOAD_LINE_BYTES} are allowed on this socket"
        )
    task = DecodeTask(
        kind=kind.name,
        n_bytes=line.n_bytes,
        seed=secrets.randbelow(SEED_MAX + 1),
        owner=peer.owner,
        marker=secrets.token_hex(MEDIA_MARKER_BYTES),
        n_fds=n_fds,
    )
    try:
        output = await decoders.read(task, line.parts, user=peer.user)
        return _parsed_line(kind, output)
    except PeerError as error:
        return error.with_traceback(None)  # its frames hold the line


def _parsed_line(kind: AnyLineKind, output: DecoderOutput) -> ParsedLine:
    result, sections = output
    if result.failure is not None:
        error = error_of(result.failure)
        raise error if isinstance(error, PeerError) else PeerError(error.message)
    if result.append is not None:
        line = result.append
        [text] = sections
        return ParsedLine(append=replace(line, bytes=_as_text(text)) if text else line)
    if result.request is not None:
        request, _ = kind.read_head(result.request)
        return _parsed_request(request, result.request, sections)
    return ParsedLine(cancel=result.cancel)


def _parsed_request(
    request: Request, head: RequestHead, sections: Sequence[bytearray]
) -> ParsedLine:
    if head.refusal is not None:
        return ParsedLine(
            request=request, resolved=error_of(head.refusal), stats=head.stats
        )
    content, *texts = sections
    if isinstance(request, BlocksRequest):
        request = replace(request, attachments=_with_texts(request, texts))
    return ParsedLine(
        request=request, resolved=_resolve_result(head, content), stats=head.stats
    )


def _with_texts(request: BlocksRequest, texts: Sequence[bytearray]) -> list[Attachment]:
    """Put base64 texts back into the attachments, as ``bytearray``: they are only ASCII."""
    return [
        replace(each, bytes=_as_text(text))
        if text and not isinstance(each, UnknownAttachment)
        else each
        for each, text in zip(request.attachments, texts, strict=True)
    ]


def _as_text(text: bytearray) -> str:
    """Cast base64 to ``str``: it is only sliced and decoded."""
    return cast("str", text)


def _resolve_result(head: RequestHead, content: bytearray) -> ResolveResult:
    job = head.job
    if isinstance(job, GenerateJob | EmbedJob):
        job = replace(job, content=Raw(content))
    if job is None:
        return InternalError("the decoder returned no job for a large line")
    return ResolvedRequest(
        job=job,
        transcription=head.transcription,
        needs=tuple(decode_requirement(each) for each in head.needs),
        model=head.model,
        priority=head.priority,
        deadline_ms=head.deadline_ms,
        keep_alive_s=head.keep_alive_s,
        describe=head.describe,
        streams=head.streams,
    )
