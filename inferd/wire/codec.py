"""Frames to requests, responses to frames: the only place that knows it is JSON."""

import json
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.limits import MAX_FRAME_BYTES, REPEATS_CHECKED_BYTES
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import Response
from inferd.wire.status import AnyStatus, StatusFrame

T = TypeVar("T", bound=msgspec.Struct)

DECODE_FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises on bytes that are not what they should be."""

_GENERATE = msgspec.json.Decoder(GenerateRequest)
_RESPONSE: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
_STATUS = msgspec.json.Decoder(AnyStatus)
_ENCODER = msgspec.json.Encoder()

_ONCE = tuple(f'"{name}"'.encode() for name in GenerateRequest.__struct_fields__)
_PER_MESSAGE = tuple(f'"{name}"'.encode() for name in ChatMessage.__struct_fields__)


def decode_request(frame: bytes) -> GenerateRequest:
    """Read a v1 generation request.

    Raises:
        InvalidFrameError: not JSON, a wrong type, a missing field, an unknown role, a
            number outside u32, or the same field twice.
    """
    try:
        request = _GENERATE.decode(frame)
        if _may_repeat_a_field(frame, len(request.messages)):
            _refuse_repeated_fields(frame)
    except DECODE_FAILURES as error:
        raise InvalidFrameError(str(error)) from error
    return request


def decode_response(frame: bytes) -> Response:
    """Read what a daemon answered.

    Raises:
        InvalidFrameError: it is no response of this protocol.
    """
    try:
        return _RESPONSE.decode(frame)
    except DECODE_FAILURES as error:
        raise InvalidFrameError(str(error)) from error


def decode_status(frame: bytes) -> AnyStatus:
    """Read what an admin socket said.

    Raises:
        InvalidFrameError: it is no status frame.
    """
    try:
        return _STATUS.decode(frame)
    except DECODE_FAILURES as error:
        raise InvalidFrameError(str(error)) from error


def encode(message: Response | GenerateRequest | StatusFrame) -> bytes:
    """Write one frame with its newline.

    Raises:
        FrameTooLargeError: the frame reaches the cap.
    """
    frame = _ENCODER.encode(message)
    if len(frame) >= MAX_FRAME_BYTES:
        raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
    return frame + b"\n"


def _may_repeat_a_field(frame: bytes, n_messages: int) -> bool:
    """Tell, in a pass of C, whether a field's name stands more often than it should.

    Inside a JSON string a quote is escaped, so a name in quotes is a key or a whole
    string. A key spelt with escapes goes unnoticed, as does one in a frame so long that
    reading it twice would hold up everybody: then the last one counts.
    """
    if len(frame) > REPEATS_CHECKED_BYTES:
        return False
    return any(frame.count(key) > 1 for key in _ONCE) or any(
        frame.count(key) > n_messages for key in _PER_MESSAGE
    )


def _refuse_repeated_fields(frame: bytes) -> None:
    """Read the frame again, slowly, and refuse a known field that stands twice.

    The wire refuses duplicate keys; msgspec takes the last one.
    """
    # Numbers stay text: Python refuses to read integers of thousands of digits.
    pairs = json.loads(frame, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    _refuse_repeats(pairs, GenerateRequest.__struct_fields__)
    for message in dict(pairs)["messages"]:
        _refuse_repeats(message, ChatMessage.__struct_fields__)


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object, in order, repeats and all."""


def _refuse_repeats(
    pairs: Iterable[tuple[str, object]], fields: tuple[str, ...]
) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in fields and name in seen:
            raise InvalidFrameError(f"duplicate field `{name}`")
        seen.add(name)
