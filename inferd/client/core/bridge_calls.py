"""Requests of the protocol as calls of a bridge, and the answers to them; pure."""

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from inferd.client.core.failures import ClientError, ProtocolError
from inferd.client.exchange import open_attachment
from inferd.config.kinds.remote_address import RemoteAddress, parse_address
from inferd.surfaces import EMBED, RERANK, V2
from inferd.wire.requests import DescribeRequest, Request

SAMPLE_RATE_HZ: Final = 16_000
JSON_TYPE: Final = "application/json"
OK: Final = 200
_PATHS: Final = {
    V2.socket: "/inferd/generate",
    EMBED.socket: "/inferd/embed",
    RERANK.socket: "/inferd/rerank",
}
_MODELS: Final = "/inferd/models"
_TRANSCRIBE: Final = "/inferd/transcribe"
_FLOATS: Final = 3
"""The number that WAV files have for samples that are floats."""
_BYTES_PER_SAMPLE: Final = 4
_MAX_CHUNK_BYTES: Final = 2**32 - 1


@dataclass(frozen=True)
class BridgeCall:
    """What is sent to a bridge for one request; its method is POST.

    Args:
        path: of the route, behind the path of the bridge's address.
        body: the line of the request, or a form with a recording.
        content_type: of the body.
    """

    path: str
    body: bytes
    content_type: str = JSON_TYPE


def bridge_address(url: str) -> RemoteAddress:
    """Parse the address of a bridge.

    Raises:
        ValueError: it is none, or one of another machine without TLS.
    """
    try:
        return parse_address(url, default_path="")
    except ValueError as error:
        raise ValueError(f"url: {error}") from None


def call_of(socket: str, request: Request, line: bytes) -> BridgeCall:
    """Return the call for a request.

    Args:
        socket: that the request is for.
        request: to send.
        line: the same, encoded.

    Raises:
        ClientError: no bridge takes such requests.
    """
    if isinstance(request, DescribeRequest):
        return BridgeCall(_MODELS, line)
    if (path := _PATHS.get(socket)) is None:
        raise ClientError(f"a bridge takes no requests for {socket}")
    return BridgeCall(path, line)


def recording_call(request: Request, line: bytes, recording: bytes) -> BridgeCall:
    """Return the call for a request whose open attachment is a recording.

    Args:
        request: to send.
        line: the same, encoded.
        recording: a file, as bytes.
    """
    boundary = f"inferd-{request.id}"
    parts = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="request"\r\n\r\n'.encode(),
        line.rstrip(),
        f'\r\n--{boundary}\r\ncontent-disposition: form-data; name="file"; '
        'filename="recording"\r\ncontent-type: application/octet-stream\r\n\r\n'.encode(),
        recording,
        f"\r\n--{boundary}--\r\n".encode(),
    )
    form = f"multipart/form-data; boundary={boundary}"
    return BridgeCall(_TRANSCRIBE, b"".join(parts), form)


def is_recording(request: Request) -> bool:
    """Tell whether a request needs a recording beside it."""
    return open_attachment(request) is not None


def wav_of(samples: bytes) -> bytes:
    """Return a WAV file of 32-bit floats, mono, 16,000 a second.

    Source: Multimedia Programming Interface and Data Specifications 1.0, "WAVE".

    Raises:
        ClientError: there are too many.
    """
    if len(samples) > _MAX_CHUNK_BYTES // 2:
        raise ClientError("the recording is too long for one request")
    rate = SAMPLE_RATE_HZ * _BYTES_PER_SAMPLE
    bits = 8 * _BYTES_PER_SAMPLE
    form = struct.pack(
        "<HHIIHHH", _FLOATS, 1, SAMPLE_RATE_HZ, rate, _BYTES_PER_SAMPLE, bits, 0
    )
    count = struct.pack("<I", len(samples) // _BYTES_PER_SAMPLE)
    chunks = (
        _wav_chunk(b"fmt ", form),
        _wav_chunk(b"fact", count),
        _wav_chunk(b"data", samples),
    )
    return _wav_chunk(b"RIFF", b"WAVE" + b"".join(chunks))


def _wav_chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data


def foreign_answer(status: int, body: bytes) -> ProtocolError:
    """Return the failure of an answer that is no bridge's of this version.

    Args:
        status: of the answer.
        body: its beginning.
    """
    told = " ".join(body.decode("utf-8", "replace").split())[:_TOLD_CHARS]
    return ProtocolError(f"the bridge answered {status}: {told}")


_TOLD_CHARS: Final = 200
"""Characters of an answer that is not understood which its failure repeats."""


def is_frame(body: bytes) -> bool:
    """Tell whether the body of a failure is a frame of the protocol."""
    try:
        return msgspec.json.decode(body, type=_AnyFrame).type == "error"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


class _AnyFrame(msgspec.Struct):
    type: str


def auth_headers(token: str | None) -> Collection[tuple[bytes, bytes]]:
    """Return the header that says who asks; none without a token.

    Raises:
        ValueError: the token cannot be in a header.
    """
    if token is None:
        return ()
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("token: expected printable ASCII without blanks")
    return ((b"authorization", f"Bearer {token}".encode()),)
