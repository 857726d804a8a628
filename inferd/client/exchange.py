"""The inference protocol of one connection without I/O: requests out, answers in.

The caller sends the bytes that ``start`` returns; then, until ``is_done``, it takes frames
from ``next_frame``, and when there is none passes received bytes to ``feed``. After that,
the next request may start on the same connection.
"""

import math
import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from inferd.client.core.failures import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
    UnreadError,
    failure_of,
)
from inferd.client.frames import ClientErrorFrame
from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.codec import DECODE_FAILURES, encode
from inferd.wire.commands import Command
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import CancelLine, Request
from inferd.wire.responses import EmbeddingsFrame, Response, TerminalFrame
from inferd.wire.speech import AppendLine

__all__ = [
    "APPEND_BYTES",
    "ClientError",
    "ClientSurface",
    "ConnectionLostError",
    "Exchange",
    "ProtocolError",
    "RequestFailedError",
    "UnreadError",
    "check_sound",
    "embeddings_of",
    "encode_line",
    "open_attachment",
    "with_options",
]

APPEND_BYTES: Final = 256 * 1024
"""Bytes of samples in one append line, 4 s of audio: a whole number of samples, and in
base64 a third of what a daemon buffers of such lines."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)


@dataclass(frozen=True)
class ClientSurface(Generic[Q, A]):
    """One kind of request, its answer frames, and the socket that serves it."""

    socket: str
    """File name of the socket."""
    decoder: msgspec.json.Decoder[A | ClientErrorFrame]

    def read(self, frame: bytes) -> A | ClientErrorFrame | None:
        """Decode a frame; ``None`` for one of a kind that only a later daemon has.

        Raises:
            InvalidFrameError: it is not a frame of this protocol.
        """
        try:
            return self.decoder.decode(frame)
        except DECODE_FAILURES as error:
            if _UNKNOWN_KIND.fullmatch(str(error)):
                return None
            raise InvalidFrameError(str(error)) from error


_UNKNOWN_KIND: Final = re.compile(
    r"Invalid (?:enum )?value .* - at `\$\.(?:type|status|block\.type)`", re.DOTALL
)
"""The message of msgspec for an unknown kind of frame, status or block."""


class Exchange(Generic[Q, A]):
    """Protocol state of one connection: at most one request is in progress."""

    def __init__(self, surface: ClientSurface[Q, A]) -> None:
        self._surface = surface
        self._splitter = LineSplitter()
        self._id: str | None = None
        self._principal: str | UnsetType = UNSET
        """For whom the request in progress asks."""
        self._open: str | None = None
        """Id of the attachment that audio may be appended to."""

    @property
    def is_done(self) -> bool:
        """Whether no request is in progress."""
        return self._id is None

    def is_for(self, request_id: str) -> bool:
        """Tell whether this request is in progress."""
        return self._id == request_id

    def start(self, request: Q) -> bytes:
        """Start a request; return the bytes to send.

        Raises:
            ClientError: the last answer is not complete, or the request is too large.
        """
        if not self.is_done:
            raise ClientError("the answer to the last request is not complete")
        data = encode_line(request)
        self._id, self._open = request.id, open_attachment(request)
        self._principal = request.principal or UNSET
        return data

    def append(self, samples: bytes, *, is_last: bool = False) -> bytes:
        """Return the bytes that append audio to the request in progress.

        Over ``APPEND_BYTES`` of samples, they are several lines.

        Raises:
            ClientError: none of its attachments is open.
        """
        if self._id is None or self._open is None:
            raise ClientError("no request with an open attachment is in progress")
        starts = range(0, max(len(samples), 1), APPEND_BYTES)
        lines = [
            self._append_line(
                self._id,
                self._principal,
                self._open,
                samples[start : start + APPEND_BYTES],
                is_last=is_last and start == starts[-1],
            )
            for start in starts
        ]
        if is_last:
            self._open = None
        return b"".join(lines)

    @staticmethod
    def _append_line(
        request_id: str,
        principal: str | UnsetType,
        attachment_id: str,
        samples: bytes,
        *,
        is_last: bool,
    ) -> bytes:
        return encode_line(
            AppendLine(
                id=request_id,
                principal=principal,
                attachment_id=attachment_id,
                bytes=b64encode(samples).decode() if samples else None,
                end=is_last,
            )
        )

    def cancel(self, request_id: str) -> bytes | None:
        """Return the bytes that cancel this request; ``None`` if it is not in progress.

        The answer still ends with a terminal frame.
        """
        if not self.is_for(request_id):
            return None
        return encode_line(CancelLine(id=request_id, principal=self._principal))

    def feed(self, data: bytes | bytearray) -> None:
        """Add received bytes; empty means the end of the connection.

        Raises:
            ConnectionLostError: it ended before the terminal frame.
        """
        if not data:
            raise ConnectionLostError("the daemon closed the connection")
        self._splitter.feed(data)

    def next_frame(self) -> A | None:
        """Return the next frame of the answer, or ``None`` if more bytes are needed.

        Raises:
            RequestFailedError: it is an error frame, which ends the answer; the class of
                its code.
            ProtocolError: it is not a valid frame, or not for this request.
        """
        try:
            while (frame := self._splitter.next_frame()) is not None:
                if (answer := self._surface.read(frame)) is not None:
                    return self._accept(answer)
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        return None

    def next_frames(self) -> tuple[list[A], ClientError | None]:
        """Return all frames that have come, and the failure that is behind them, if any.

        Both are empty if more bytes are needed. The failure is one that ``next_frame`` raises.
        """
        frames: list[A] = []
        try:
            while (frame := self.next_frame()) is not None:
                frames.append(frame)
        except ClientError as error:
            return frames, error
        return frames, None

    def _accept(self, answer: A | ClientErrorFrame) -> A:
        is_about_connection = isinstance(answer, ClientErrorFrame) and answer.id == ""
        if self._id is None or (answer.id != self._id and not is_about_connection):
            raise ProtocolError(
                f"a frame for request {answer.id!r}, which is not in progress"
            )
        if isinstance(answer, TerminalFrame):
            self._id = None
        if isinstance(answer, ClientErrorFrame):
            raise failure_of(answer)
        return answer


def with_options(request: Q, model: str | None, principal: str | None) -> Q:
    """Return the request, with its ``model`` and ``principal`` replaced if they are given."""
    if model is not None:
        request = replace(request, model=model)
    return request if principal is None else replace(request, principal=principal)


def open_attachment(request: Request) -> str | None:
    """Return the id of the attachment whose audio is appended later."""
    if not isinstance(request, BlocksRequest):
        return None
    attachments = request.attachments
    audio = (entry for entry in attachments if isinstance(entry, AudioAttachment))
    return next((entry.id for entry in audio if entry.open), None)


def check_sound(request: Request, *, is_given: bool) -> None:
    """Check that audio is given if and only if an attachment is open.

    Raises:
        ClientError: only one of both is there.
    """
    attachment_id = open_attachment(request)
    if attachment_id is None and is_given:
        raise ClientError("no attachment of the request is open for the audio")
    if attachment_id is not None and not is_given:
        raise ClientError(
            f"attachment {attachment_id!r} is open, but no audio is given"
        )


def encode_line(message: Request | CancelLine | AppendLine | Command) -> bytes:
    """Encode a message as a line.

    Raises:
        ClientError: it is too large, holds text that is not UTF-8, or a number that is
            not finite.
    """
    _check_numbers(message)
    try:
        return encode(message)
    except FrameTooLargeError as error:
        raise ClientError(error.message) from error
    except UnicodeEncodeError as error:
        raise ClientError("a text of the request is not valid UTF-8") from error


def _check_numbers(message: Struct) -> None:
    """Refuse infinities and NaN: they would be encoded as ``null``, the default."""
    for field, value in asdict(message).items():
        if isinstance(value, dict):
            for key, number in value.items():
                _check_number(f"{field}[{key}]", number)
        elif isinstance(value, float):
            _check_number(field, value)


def _check_number(name: str, number: object) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise ClientError(f"{name} {number} is not finite")


def embeddings_of(frame: EmbeddingsFrame) -> list[list[float]]:
    """Decode the embeddings of an answer: one for each input, in order.

    In the frame they are raw JSON, so that a program that only forwards them need not
    decode them.

    Raises:
        ProtocolError: they are not lists of numbers.
    """
    try:
        return _EMBEDDINGS.decode(frame.embeddings)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"embeddings: {error}") from error


_EMBEDDINGS: Final = msgspec.json.Decoder(list[list[float]])
