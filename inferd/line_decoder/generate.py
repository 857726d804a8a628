"""Large lines with requests to generate: v1's and v2's."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.backend.job import GenerateJob, PastCall, Turn
from inferd.errors import InvalidRequestError
from inferd.ipc.encoding import encode_content
from inferd.limits.line_decoder import MAX_TOOLS_BYTES
from inferd.limits.protocol import MAX_ATTACHMENTS, MAX_JOB_MEDIA
from inferd.line_decoder.kind import LineKind, shortened
from inferd.line_decoder.messages import DecodeTask
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v1 import resolve_v1
from inferd.resolve.v2 import resolve_v2
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    BlocksRequest,
    ImageAttachment,
    VideoAttachment,
)
from inferd.wire.codec import decode_blocks, decode_generate
from inferd.wire.requests import GenerateRequest


def _resolve_text(
    request: GenerateRequest, task: DecodeTask
) -> ResolvedRequest[GenerateJob]:
    return resolve_v1(request, seed=task.seed, owner=task.owner)


def _resolve_blocks(
    request: BlocksRequest, task: DecodeTask
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


def _without_content(request: BlocksRequest) -> BlocksRequest:
    attachments = request.attachments[:MAX_ATTACHMENTS]
    return BlocksRequest(
        id=request.id,
        principal=shortened(request.principal),
        messages=[],
        attachments=[_light(each) for each in attachments],
    )


def _job_head(job: GenerateJob) -> GenerateJob:
    has_calls = any(turn.calls for turn in job.turns)
    call = PastCall(id="", name="", arguments="")
    turns = [Turn("assistant", "", (call,))] if has_calls else []
    return replace(job, turns=turns, input_tokens=job.input_tokens[:1])


def _texts(request: BlocksRequest) -> Sequence[bytes]:
    return [_text_of(each).encode() for each in request.attachments[:MAX_ATTACHMENTS]]


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


TEXT: Final = LineKind(
    name="text",
    request=GenerateRequest,
    job=GenerateJob,
    decode=decode_generate,
    resolve=_resolve_text,
    without_content=lambda request: GenerateRequest(
        id=request.id, principal=shortened(request.principal), messages=[]
    ),
    job_head=_job_head,
    content=encode_content,
)
BLOCKS: Final = LineKind(
    name="blocks",
    request=BlocksRequest,
    job=GenerateJob,
    decode=decode_blocks,
    resolve=_resolve_blocks,
    without_content=_without_content,
    job_head=_job_head,
    content=encode_content,
    texts=_texts,
    takes_appends=True,
)
