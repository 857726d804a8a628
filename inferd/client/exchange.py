"""One connection's exchanges without its I/O: requests out, answers in.

A shell sends what ``start`` gives; then, until ``is_over``, it takes frames, and feeds
what it reads when there is none. The next exchange may start on the same connection.
"""

import math
import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from inferd.client.frames import Answer, Failure
from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.wire.blocks import AudioAttachment, BlocksRequest
from inferd.wire.codec import DECODE_FAILURES, Request, encode
from inferd.wire.commands import Command
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import CancelLine
from inferd.wire.responses import EmbeddingsFrame, Terminal
from inferd.wire.speech import AppendLine

APPEND_BYTES: Final = 256 * 1024
"""Bytes of samples in a line that appends, 4 s of sound: whole samples, and with their
base64 a third of what a daemon holds of such lines."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


class ClientError(Exception):
    """A request did not end as it should."""


class RequestFailedError(ClientError):
    """The daemon ended the request with an error frame.

    Attributes:
        frame: as it came, with ``code``, ``message`` and what goes with them.
    """

    def __init__(self, frame: Failure) -> None:
        self.frame = frame
        super().__init__(f"{frame.code}: {frame.message}")

    @property
    def code(self) -> str:
        """The kind of failure: one of ``ErrorCode``, or a later daemon's."""
        return self.frame.code


class ConnectionLostError(ClientError):
    """The connection ended before the terminal frame."""


class ProtocolError(ClientError):
    """The daemon said what this protocol does not know."""


@dataclass(frozen=True)
class Surface(Generic[Q, A]):
    """One kind of request, its answers, and the socket where they meet."""

    socket: str
    """The leaf of its path."""
    decoder: msgspec.json.Decoder[A | Failure]

    def read(self, frame: bytes) -> A | Failure | None:
        """Read a frame of an answer; ``None`` for news from a later daemon.

        Raises:
            InvalidFrameError: it is no frame of this protocol.
        """
        try:
            return self.decoder.decode(frame)
        except DECODE_FAILURES as error:
            if _NEWS.fullmatch(str(error)):
                return None
            raise InvalidFrameError(str(error)) from error


_NEWS: Final = re.compile(
    r"Invalid (?:enum )?value .* - at `\$\.(?:type|status|block\.type)`", re.DOTALL
)
"""What msgspec says of a frame, a status or a block of a kind that we do not know."""


class Exchange(Generic[Q, A]):
    """The state of one connection."""

    def __init__(self, surface: Surface[Q, A]) -> None:
        self._surface = surface
        self._splitter = LineSplitter()
        self._id: str | None = None
        self._open: str | None = None
        """The attachment that sound may be added to."""

    @property
    def is_over(self) -> bool:
        """Whether no answer is due."""
        return self._id is None

    def is_about(self, request_id: str) -> bool:
        """Tell whether this request is under way."""
        return self._id == request_id

    def start(self, request: Q) -> bytes:
        """Begin an exchange; give the bytes to send.

        Raises:
            ClientError: the last answer is not complete, or the request is too large.
        """
        if not self.is_over:
            raise ClientError("the answer to the last request is not complete")
        data = line_of(request)
        self._id, self._open = request.id, open_sound(request)
        return data

    def append(self, samples: bytes, *, is_last: bool = False) -> bytes:
        """Give the bytes that add sound to the request that is under way.

        A line holds ``APPEND_BYTES`` of samples; of more there are several lines.

        Raises:
            ClientError: none of its attachments is open.
        """
        if self._id is None or self._open is None:
            raise ClientError("no request is under way whose sound is open")
        starts = range(0, max(len(samples), 1), APPEND_BYTES)
        lines = [
            self._append_line(
                self._id,
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
        request_id: str, attachment_id: str, samples: bytes, *, is_last: bool
    ) -> bytes:
        return line_of(
            AppendLine(
                id=request_id,
                attachment_id=attachment_id,
                bytes=b64encode(samples).decode() if samples else None,
                end=is_last,
            )
        )

    def cancel(self, request_id: str) -> bytes | None:
        """Give the bytes that cancel this request; ``None`` if another is under way.

        Its answer ends all the same: with a terminal frame.
        """
        return line_of(CancelLine(id=request_id)) if self.is_about(request_id) else None

    def feed(self, data: bytes | bytearray) -> None:
        """Add what was read. No bytes mean the end.

        Raises:
            ConnectionLostError: it ended before the terminal frame.
        """
        if not data:
            raise ConnectionLostError("the daemon closed the connection")
        self._splitter.feed(data)

    def next_frame(self) -> A | None:
        """Take the next frame of the answer, or ``None`` if more is needed.

        Raises:
            RequestFailedError: it is an error frame, the last one of the answer.
            ProtocolError: what came is no frame, or not for our request.
        """
        try:
            while (frame := self._splitter.next_frame()) is not None:
                if (answer := self._surface.read(frame)) is not None:
                    return self._take(answer)
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        return None

    def _take(self, answer: A | Failure) -> A:
        is_about_connection = isinstance(answer, Failure) and answer.id == ""
        if self._id is None or (answer.id != self._id and not is_about_connection):
            raise ProtocolError(f"a frame for request {answer.id!r}, which is not ours")
        if isinstance(answer, Terminal):
            self._id = None
        if isinstance(answer, Failure):
            raise RequestFailedError(answer)
        return answer


def open_sound(request: Request) -> str | None:
    """Find the attachment whose sound comes later."""
    if not isinstance(request, BlocksRequest):
        return None
    attachments = request.attachments
    sounds = (each for each in attachments if isinstance(each, AudioAttachment))
    return next((each.id for each in sounds if each.open), None)


def check_sound(request: Request, *, is_given: bool) -> None:
    """Refuse sound that no attachment is open for, and an open one without sound.

    Raises:
        ClientError: it is so.
    """
    attachment_id = open_sound(request)
    if attachment_id is None and is_given:
        raise ClientError("no attachment is open for the sound")
    if attachment_id is not None and not is_given:
        raise ClientError(f"attachment {attachment_id!r} is open, and has no sound")


def line_of(message: Request | CancelLine | AppendLine | Command) -> bytes:
    """Write a message as it is sent.

    Raises:
        ClientError: it is too large, or holds what is no text, or no number of JSON.
    """
    _check_numbers(message)
    try:
        return encode(message)
    except FrameTooLargeError as error:
        raise ClientError(error.message) from error
    except UnicodeEncodeError as error:
        raise ClientError("the request holds what is no text") from error


def _check_numbers(message: Struct) -> None:
    """Refuse numbers that JSON has not: they would be written as ``null``, the default."""
    for field in message.__struct_fields__:
        value = getattr(message, field)
        numbers = {field: value}
        if isinstance(value, dict):
            numbers = {f"{field}[{key}]": each for key, each in value.items()}
        for name, number in numbers.items():
            if isinstance(number, float) and not math.isfinite(number):
                raise ClientError(f"{name} {number} is not finite")


def embeddings_of(frame: EmbeddingsFrame) -> list[list[float]]:
    """Read the numbers of an answer: one embedding for each input, in order.

    In the frame they are JSON: who only passes them on need not read them.

    Raises:
        ProtocolError: they are no lists of numbers.
    """
    try:
        return _EMBEDDINGS.decode(frame.embeddings)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"embeddings: {error}") from error


_EMBEDDINGS: Final = msgspec.json.Decoder(list[list[float]])
