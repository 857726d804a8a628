"""A job as a line of the v2 socket, whose every option a daemon has; a bridge takes it too."""

import base64
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from inferd.backend.job import GenerateJob, Media, Structure, ToolChoice, Turn
from inferd.config.kinds.inferd import InferdSettings
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.surfaces import EMBED, RERANK, V2, Surface
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    AudioBlock,
    Block,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    Message,
    NamedTool,
    ResponseFormat,
    TextBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
)
from inferd.wire.requests import Request
from inferd.worker.backend import RefusedError
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.conversation.turns import arguments_of

_ROUTES: Final = {
    V2: "/inferd/generate",
    EMBED: "/inferd/embed",
    RERANK: "/inferd/rerank",
}
"""Of the bridge: a line is a body there."""
REQUEST_ID: Final = "r"
"""Of each request: a connection has one at a time."""


def write_chat(
    settings: InferdSettings, job: GenerateJob, media: Sequence[bytes] = ()
) -> RemoteRequest:
    """Write the line for a streamed answer.

    Stop strings are not in it: the daemon here finds them, and ends the request there.

    Args:
        settings: of the backend.
        job: to translate.
        media: of the job, pixels and samples, in their order.

    Raises:
        RefusedError: the line would be too long, or a call's arguments are no object.
    """
    line = write_line(_request(settings, job, media))
    return asked_at(settings, V2, line)


def write_count(settings: InferdSettings, job: GenerateJob) -> RemoteRequest | None:
    """Write the line that has a prompt counted.

    With media it is not counted: they are not at hand.
    """
    if job.media:
        return None
    line = write_line(_request(settings, replace(job, max_tokens=0, min_tokens=0), ()))
    return asked_at(settings, V2, line)


def asked_at(
    settings: InferdSettings,
    surface: Surface,
    line: bytes,
    form: AnswerForm = AnswerForm.LINES,
) -> RemoteRequest:
    """Make the request of a line: to a socket, or to the bridge's route for it."""
    path = surface.socket if settings.has_sockets else _ROUTES[surface]
    return RemoteRequest(path, line, form)


def write_line(request: Request) -> bytes:
    """Encode a request, without the fields that it leaves out.

    Raises:
        RefusedError: it is too long for a line, as large media are.
    """
    given = {
        name: value
        for name, value in asdict(request).items()
        if value is not None and value is not UNSET
    }
    line = msgspec.json.encode(given)
    if len(line) > MAX_FRAME_BYTES:
        raise RefusedError(
            f"the request is too long for a socket: {len(line)} bytes, at most "
            f"{MAX_FRAME_BYTES} are one line"
        )
    return line + b"\n"


def attachment_of(medium: Media, data: bytes) -> Attachment:
    """Write a medium with its bytes: descriptors do not pass a forwarded socket."""
    text = base64.b64encode(data).decode()
    if medium.kind == "image":
        return ImageAttachment(medium.id, medium.width, medium.height, text)
    return AudioAttachment(medium.id, medium.sample_rate, text)


def _request(
    settings: InferdSettings, job: GenerateJob, media: Sequence[bytes]
) -> BlocksRequest:
    sampling = job.sampling
    attachments = {
        medium.id: attachment_of(medium, data)
        for medium, data in zip(job.media, media, strict=False)
    }
    left = iter(job.media)
    return BlocksRequest(
        id=REQUEST_ID,
        model=settings.model,
        via=[*job.via] or None,
        messages=UNSET
        if job.input_tokens
        else [_message(job, turn, left) for turn in job.turns],
        input_tokens=job.input_tokens or None,
        token_ids=job.wants_token_ids or None,
        attachments=[*attachments.values()],
        tools=[
            Tool(each.name, each.description, msgspec.Raw(each.input_schema.encode()))
            for each in job.tools
        ],
        tool_choice=_choice(job.tool_choice) if job.tools else None,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repeat_penalty=sampling.repeat_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias={str(key): bias for key, bias in sampling.logit_bias.items()}
        or None,
        seed=sampling.seed,
        max_tokens=job.max_tokens,
        min_tokens=job.min_tokens,
        stop_token_ids=[*job.stop_token_ids] or None,
        logprobs=job.n_alternatives or None,
        response_format=_format(job.structure),
        thinking=job.thinks or None,
        cache=job.cache,
        prefill_only=job.prefill_only or None,
    )


def _message(job: GenerateJob, turn: Turn, media: Iterator[Media]) -> Message:
    blocks = [*_blocks(job, turn.text, media)]
    match turn.role:
        case "tool":
            return Message("user", [ToolResultBlock(turn.call_id, blocks)])
        case "assistant" if turn.calls:
            calls = [
                ToolUseBlock(each.id, each.name, arguments_of(each))
                for each in turn.calls
            ]
            return Message("assistant", [*blocks, *calls])
        case role:
            return Message(role, blocks or [TextBlock("")])


def _blocks(job: GenerateJob, text: str, media: Iterator[Media]) -> Iterator[Block]:
    first, *others = text.split(job.marker) if job.marker else [text]
    if first:
        yield TextBlock(first)
    for after in others:
        medium = next(media)
        is_image = medium.kind == "image"
        yield ImageBlock(medium.id) if is_image else AudioBlock(medium.id)
        if after:
            yield TextBlock(after)


def _choice(choice: ToolChoice) -> str | NamedTool:
    return NamedTool(choice.name) if choice.kind == "named" else choice.kind


def _format(structure: Structure | None) -> ResponseFormat | None:
    if structure is None:
        return None
    source = structure.source
    is_schema = structure.kind == "json_schema"
    is_pattern = structure.kind == "regex"
    return ResponseFormat(
        type=structure.kind,
        schema=msgspec.Raw(source.encode()) if is_schema else UNSET,
        pattern=source if is_pattern else None,
        grammar=None if is_schema or is_pattern else source,
    )
