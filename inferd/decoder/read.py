"""A large line to what the daemon needs to know of it, and to what it only passes on."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from inferd.decoder.limits import MAX_FAILURE_CHARS, MAX_HEAD_BYTES, MAX_TOOLS_BYTES
from inferd.decoder.messages import Answer, Ask, Failure, Request, failure_of, framed
from inferd.errors import InvalidRequestError, PeerError
from inferd.job import (
    EmbedJob,
    GenerateJob,
    RerankJob,
    ToolCall,
    TranscribeJob,
    Turn,
)
from inferd.limits import MAX_ATTACHMENTS, MAX_JOB_MEDIA, MAX_RERANK_BYTES
from inferd.pipe import content_of
from inferd.resolve.blocks import resolve_blocks
from inferd.resolve.embed import resolve_embed
from inferd.resolve.plan import J, Plan
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.text import resolve_text
from inferd.routing import written
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    BlocksRequest,
    ImageAttachment,
    VideoAttachment,
)
from inferd.wire.codec import (
    decode_append,
    decode_blocks,
    decode_cancel,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest


class Read(NamedTuple):
    """What is told, and the sections that follow it."""

    answer: Answer
    sections: Sequence[bytes] = ()

    def measured(self) -> "Read":
        """Have the answer say how long its sections are.

        Raises:
            InvalidRequestError: it would be longer than the daemon decodes at once.
        """
        sizes = [len(each) for each in self.sections]
        answer = replace(self.answer, sections=sizes)
        n_bytes = len(framed(answer))
        if n_bytes > MAX_HEAD_BYTES + _document_bytes(answer):
            raise InvalidRequestError(
                f"ids of attachments and other short fields have {n_bytes} bytes, "
                f"at most {MAX_HEAD_BYTES} are allowed"
            )
        return Read(answer, self.sections)


def _document_bytes(answer: Answer) -> int:
    """Tell how many bytes may be documents of a request for scores."""
    job = answer.request.job if answer.request else None
    return MAX_RERANK_BYTES if isinstance(job, RerankJob) else 0


def read(ask: Ask, line: bytes) -> Read:
    """Read a line as the daemon reads a short one."""
    try:
        return _read(ask, line).measured()
    except PeerError as error:
        return Read(Answer(failure=_failure(error)))


def _failure(error: PeerError) -> Failure:
    return failure_of(error, most_chars=MAX_FAILURE_CHARS)


def _read(ask: Ask, line: bytes) -> Read:
    if cancel := decode_cancel(line):
        return Read(Answer(cancel=cancel.id))
    match ask.kind:
        case "text":
            return _read_text(ask, line)
        case "blocks":
            return _read_blocks(ask, line)
        case "embed":
            return _read_embed(line)
        case "rerank":
            return _read_rerank(line)


def _read_text(ask: Ask, line: bytes) -> Read:
    request = decode_generate(line)
    light = GenerateRequest(id=request.id, messages=[])
    try:
        plan = resolve_text(request, seed=ask.seed, owner=ask.owner)
    except PeerError as error:
        return Read(Answer(request=Request(text=light, refusal=_failure(error))))
    content = content_of(plan.job)
    return Read(Answer(request=_planned(plan, Request(text=light))), [content])


def _read_blocks(ask: Ask, line: bytes) -> Read:
    if append := decode_append(line):
        text = (append.bytes or "").encode()
        light = append if append.bytes is None else replace(append, bytes="")
        return Read(Answer(append=light), [text])
    request = decode_blocks(line)
    facts = {"n_attachments": len(request.attachments), "n_tools": len(request.tools)}
    attachments = request.attachments[:MAX_ATTACHMENTS]
    blocks = BlocksRequest(
        id=request.id, messages=[], attachments=[_light(each) for each in attachments]
    )
    try:
        plan = _plan_of_blocks(ask, request)
    except PeerError as error:
        refused = Request(blocks=blocks, facts=facts, refusal=_failure(error))
        return Read(Answer(request=refused))
    known = _planned(plan, Request(blocks=blocks, facts=facts))
    texts = [_text_of(each).encode() for each in attachments]
    return Read(Answer(request=known), [content_of(plan.job), *texts])


def _plan_of_blocks(ask: Ask, request: BlocksRequest) -> Plan[GenerateJob]:
    plan = resolve_blocks(
        request,
        seed=ask.seed,
        owner=ask.owner,
        marker=ask.marker,
        n_fds=ask.n_fds,
    )
    n_media = len(plan.job.media)
    if n_media > MAX_JOB_MEDIA:
        raise InvalidRequestError(
            f"messages show media {n_media} times, at most {MAX_JOB_MEDIA} are allowed"
        )
    n_bytes = len(msgspec.msgpack.encode(plan.job.tools))
    if n_bytes > MAX_TOOLS_BYTES:
        raise InvalidRequestError(
            f"tools have {n_bytes} bytes, at most {MAX_TOOLS_BYTES} are allowed"
        )
    return plan


def _read_embed(line: bytes) -> Read:
    request = decode_embed(line)
    facts = {"n_inputs": len(request.input)}
    light = Request(embed=EmbedRequest(id=request.id, input=[]), facts=facts)
    try:
        plan = resolve_embed(request)
    except PeerError as error:
        return Read(Answer(request=replace(light, refusal=_failure(error))))
    return Read(Answer(request=_planned(plan, light)), [content_of(plan.job)])


def _read_rerank(line: bytes) -> Read:
    request = decode_rerank(line)
    facts = {"n_documents": len(request.documents)}
    rerank = RerankRequest(id=request.id, query="", documents=[], top_n=request.top_n)
    light = Request(rerank=rerank, facts=facts)
    try:
        plan = resolve_rerank(request)
    except PeerError as error:
        return Read(Answer(request=replace(light, refusal=_failure(error))))
    return Read(Answer(request=_planned(plan, light)), [b""])


def _planned(plan: Plan[J], request: Request) -> Request:
    """Tell what a request comes to."""
    return replace(
        request,
        job=_light_job(plan.job),
        transcription=plan.transcription,
        needs=[list(written(each)) for each in plan.needs],
        priority=plan.priority,
        deadline_ms=plan.deadline_ms,
        streams=plan.streams,
    )


def _light_job(
    job: GenerateJob | EmbedJob | RerankJob | TranscribeJob,
) -> GenerateJob | EmbedJob | RerankJob:
    """Leave out what the daemon only passes on; documents are few and bounded."""
    match job:
        case GenerateJob():
            has_calls = any(turn.calls for turn in job.turns)
            call = ToolCall(id="", name="", arguments="")
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
