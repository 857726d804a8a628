"""Requests of the protocol, as bodies: the daemon's decoders read them."""

import dataclasses
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from inferd.bridge.native.answer import FramesAnswer, OneFrame
from inferd.bridge.native.appended import AppendedLines
from inferd.bridge.native.failures import error_frame
from inferd.bridge.recordings.form import FILE, Form
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.media import EncodedMedium
from inferd.bridge.translation.question import Asked, DaemonRequest, Question
from inferd.errors import InferdError
from inferd.wire.blocks import AudioAttachment, BlocksRequest, ImageAttachment
from inferd.wire.codec import (
    DECODE_FAILURES,
    decode_blocks,
    decode_embed,
    decode_rerank,
    encode,
)
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.unknown_fields import strict_refusal

Q = TypeVar("Q", bound=DaemonRequest)
REQUEST: Final = "request"
"""The field of a form that has the request."""
_ONE_LINE: Final = -1
"""How ``msgspec`` is told to write JSON without a newline in it."""


def _read(body: bytes, decode: Callable[[bytes], Q]) -> Q:
    """Decode a request.

    Raises:
        BridgeError: the daemon would not take it, or its principal is given.
    """
    try:
        line = msgspec.json.format(body, indent=_ONE_LINE)
        request = decode(line)
    except InferdError as error:
        raise BridgeError(Reason.INVALID_REQUEST, error.message) from error
    except DECODE_FAILURES as error:
        raise BridgeError(Reason.INVALID_REQUEST, f"the body: {error}") from error
    if (refusal := strict_refusal(line, request)) is not None:
        raise BridgeError(Reason.UNKNOWN_FIELD, refusal.message)
    if request.principal is not None:
        raise BridgeError(
            Reason.UNSUPPORTED,
            "principal: whose request it is follows from the token",
            param="principal",
        )
    return request


def ask_blocks(body: bytes, asked: Asked) -> Question:
    """Take a v2 request.

    Raises:
        BridgeError: it is not one, or has media that cannot come over HTTP.
    """
    request = _read(body, decode_blocks)
    for index, each in enumerate(request.attachments):
        match each:
            case ImageAttachment(fd=None) | AudioAttachment(fd=None, open=False):
                pass
            case ImageAttachment() | AudioAttachment():
                text = (
                    "needs bytes: no descriptor and no appended audio comes over HTTP"
                )
                raise invalid(f"attachments[{index}]", text)
            case _:
                pass
    return _question(request, asked)


def ask_recording(form: Form, asked: Asked) -> Question:
    """Take a v2 request whose one attachment is a recording.

    Raises:
        BridgeError: it is not one.
    """
    fields = dict(form.fields)
    if (text := fields.pop(REQUEST, None)) is None or fields or len(form.fields) > 1:
        raise invalid(REQUEST, "the form has this field and a file, and no other")
    request = _read(text.encode(), decode_blocks)
    match request.attachments:
        case [AudioAttachment(id=name, open=True)]:
            sound = EncodedMedium("sound", form.file, FILE, name)
            return _question(request, asked, sound)
        case _:
            raise invalid("attachments", "one recording that is open, and no other")


def ask_live(line: bytes, asked: Asked) -> Question:
    """Take a v2 request whose one attachment is sound that follows it.

    Raises:
        BridgeError: it is not one.
    """
    request = _read(line, decode_blocks)
    match request.attachments:
        case [AudioAttachment(id=name, open=True, fd=None, bytes=None)]:
            appended = AppendedLines(request.id, name)
            return dataclasses.replace(_question(request, asked), appended=appended)
        case _:
            raise invalid("attachments", "audio that is open, and no other")


def _question(request: BlocksRequest, asked: Asked, *media: EncodedMedium) -> Question:
    answer = FramesAnswer(request)
    n_most = request.max_tokens
    if n_most is None and not request.attachments:  # a transcription has no bound
        n_most = asked.default_max_tokens
    return Question(
        replace(request, id=asked.request_id, max_tokens=n_most),
        answer,
        is_streamed=True,
        failure_event=lambda failure: encode(error_frame(failure, request.id)),
        media=media,
    )


def ask_vectors(body: bytes, asked: Asked) -> Question:
    """Take a request for embeddings.

    Raises:
        BridgeError: it is not one.
    """
    request = _read(body, decode_embed)
    answer = OneFrame(EmbeddingsFrame, request.id)
    return Question(replace(request, id=asked.request_id), answer)


def ask_ranking(body: bytes, asked: Asked) -> Question:
    """Take a request to rank documents.

    Raises:
        BridgeError: it is not one.
    """
    request = _read(body, decode_rerank)
    answer = OneFrame(RerankFrame, request.id)
    return Question(replace(request, id=asked.request_id), answer)
