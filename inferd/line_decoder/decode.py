"""Decode a large line into a head for the daemon and sections that it only forwards."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    PastCall,
    RerankJob,
    TranscribeJob,
    Turn,
)
from inferd.errors import InvalidRequestError, PeerError
from inferd.ipc.encoding import encode_content
from inferd.limits.line_decoder import (
    MAX_FAILURE_CHARS,
    MAX_HEAD_BYTES,
    MAX_TOOLS_BYTES,
)
from inferd.limits.protocol import MAX_ATTACHMENTS, MAX_JOB_MEDIA, MAX_RERANK_BYTES
from inferd.line_decoder.messages import (
    DecodeFailure,
    DecodeResult,
    DecodeTask,
    RequestHead,
    failure_of,
    framed,
)
from inferd.resolve.embed import resolve_embed
from inferd.resolve.request import J, ResolvedRequest
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.v1 import resolve_v1
from inferd.resolve.v2 import resolve_v2
from inferd.routing import encode_requirement
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    BlocksRequest,
    ImageAttachment,
    VideoAttachment,
)
from inferd.wire.codec import (
    decode_blocks,
    decode_cancel,
    decode_cancel_or_append,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.requests import (
    CancelLine,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)


class DecodeOutput(NamedTuple):
    """The result, and the sections that follow it."""

    result: DecodeResult
    sections: Sequence[bytes] = ()

    def with_section_sizes(self) -> "DecodeOutput":
        """Note the lengths of the sections in the result.

        Raises:
            InvalidRequestError: the result would be longer than the daemon decodes at once.
        """
        sizes = [len(section) for section in self.sections]
        result = replace(self.result, sections=sizes)
        n_bytes = len(framed(result))
        if n_bytes > MAX_HEAD_BYTES + _document_bytes(result):
            raise InvalidRequestError(
                f"ids of attachments and other short fields have {n_bytes} bytes, "
                f"at most {MAX_HEAD_BYTES} are allowed"
            )
        return DecodeOutput(result, self.sections)


def _document_bytes(result: DecodeResult) -> int:
    """Return the bytes that documents of a rerank request may add."""
    job = result.request.job if result.request else None
    return MAX_RERANK_BYTES if isinstance(job, RerankJob) else 0


def decode_large_line(task: DecodeTask, line: bytes) -> DecodeOutput:
    """Decode a line as the daemon decodes a short one."""
    try:
        return _decode(task, line).with_section_sizes()
    except PeerError as error:
        return DecodeOutput(DecodeResult(failure=_failure(error)))


def _failure(error: PeerError) -> DecodeFailure:
    return failure_of(error, max_chars=MAX_FAILURE_CHARS)


def _decode(task: DecodeTask, line: bytes) -> DecodeOutput:
    decode_aside = decode_cancel_or_append if task.kind == "blocks" else decode_cancel
    match decode_aside(line):
        case None:
            return _decode_request(task, line)
        case CancelLine(id=request_id):
            return DecodeOutput(DecodeResult(cancel=request_id))
        case append:
            text = (append.bytes or "").encode()
            light = append if append.bytes is None else replace(append, bytes="")
            return DecodeOutput(DecodeResult(append=light), [text])


def _decode_request(task: DecodeTask, line: bytes) -> DecodeOutput:
    match task.kind:
        case "text":
            return _decode_text(task, line)
        case "blocks":
            return _decode_blocks(task, line)
        case "embed":
            return _decode_embed(line)
        case "rerank":
            return _decode_rerank(line)


def _decode_text(task: DecodeTask, line: bytes) -> DecodeOutput:
    request = decode_generate(line)
    light = GenerateRequest(id=request.id, messages=[])
    try:
        resolved = resolve_v1(request, seed=task.seed, owner=task.owner)
    except PeerError as error:
        return DecodeOutput(
            DecodeResult(request=RequestHead(text=light, refusal=_failure(error)))
        )
    content = encode_content(resolved.job)
    return DecodeOutput(
        DecodeResult(request=_with_job(resolved, RequestHead(text=light))), [content]
    )


def _decode_blocks(task: DecodeTask, line: bytes) -> DecodeOutput:
    request = decode_blocks(line)
    stats = request.counts()
    attachments = request.attachments[:MAX_ATTACHMENTS]
    blocks = BlocksRequest(
        id=request.id,
        messages=[],
        attachments=[_light(attachment) for attachment in attachments],
    )
    try:
        resolved = _resolve_blocks(task, request)
    except PeerError as error:
        refused = RequestHead(blocks=blocks, stats=stats, refusal=_failure(error))
        return DecodeOutput(DecodeResult(request=refused))
    head = _with_job(resolved, RequestHead(blocks=blocks, stats=stats))
    texts = [_text_of(attachment).encode() for attachment in attachments]
    return DecodeOutput(
        DecodeResult(request=head), [encode_content(resolved.job), *texts]
    )


def _resolve_blocks(
    task: DecodeTask, request: BlocksRequest
) -> ResolvedRequest[GenerateJob]:
    resolved = resolve_v2(
        request,
        seed=task.seed,
        owner=task.owner,
        marker=task.marker,
        n_fds=task.n_fds,
    )
    n_media = len(resolved.job.media)
    if n_media > MAX_JOB_MEDIA:
        raise InvalidRequestError(
            f"messages show media {n_media} times, at most {MAX_JOB_MEDIA} are allowed"
        )
    n_bytes = len(msgspec.msgpack.encode(resolved.job.tools))
    if n_bytes > MAX_TOOLS_BYTES:
        raise InvalidRequestError(
            f"tools have {n_bytes} bytes, at most {MAX_TOOLS_BYTES} are allowed"
        )
    return resolved


def _decode_embed(line: bytes) -> DecodeOutput:
    request = decode_embed(line)
    stats = request.counts()
    light = RequestHead(embed=EmbedRequest(id=request.id, input=[]), stats=stats)
    try:
        resolved = resolve_embed(request)
    except PeerError as error:
        return DecodeOutput(
            DecodeResult(request=replace(light, refusal=_failure(error)))
        )
    return DecodeOutput(
        DecodeResult(request=_with_job(resolved, light)), [encode_content(resolved.job)]
    )


def _decode_rerank(line: bytes) -> DecodeOutput:
    request = decode_rerank(line)
    stats = request.counts()
    rerank = RerankRequest(id=request.id, query="", documents=[], top_n=request.top_n)
    light = RequestHead(rerank=rerank, stats=stats)
    try:
        resolved = resolve_rerank(request)
    except PeerError as error:
        return DecodeOutput(
            DecodeResult(request=replace(light, refusal=_failure(error)))
        )
    return DecodeOutput(DecodeResult(request=_with_job(resolved, light)), [b""])


def _with_job(resolved: ResolvedRequest[J], request: RequestHead) -> RequestHead:
    """Add the resolved job to a request's head."""
    return replace(
        request,
        job=_light_job(resolved.job),
        transcription=resolved.transcription,
        needs=[list(encode_requirement(requirement)) for requirement in resolved.needs],
        priority=resolved.priority,
        deadline_ms=resolved.deadline_ms,
        streams=resolved.streams,
    )


def _light_job(
    job: GenerateJob | EmbedJob | RerankJob | TranscribeJob,
) -> GenerateJob | EmbedJob | RerankJob:
    """Leave out parts that the daemon only forwards; documents are few and bounded."""
    match job:
        case GenerateJob():
            has_calls = any(turn.calls for turn in job.turns)
            call = PastCall(id="", name="", arguments="")
            turns = [Turn("assistant", "", (call,))] if has_calls else []
            return replace(job, turns=turns)
        case EmbedJob():
            return replace(job, texts=[""] * len(job.texts))
        case RerankJob():
            return job
        case TranscribeJob():
            raise TypeError("a transcription is no job of its own here")


def _light(attachment: Attachment) -> Attachment:
    match attachment:
        case ImageAttachment() | AudioAttachment() | VideoAttachment():
            return replace(attachment, bytes="") if attachment.bytes else attachment
        case _:
            return attachment


def _text_of(attachment: Attachment) -> str:
    match attachment:
        case ImageAttachment() | AudioAttachment() | VideoAttachment():
            return attachment.bytes or ""
        case _:
            return ""
