"""The admin protocol without I/O: the stream of status frames, and commands."""

from typing import Final

import msgspec
from msgspec import UNSET, Struct

from inferd.client.exchange import ConnectionLostError, ProtocolError, encode_line
from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.wire.codec import DECODE_FAILURES, decode_reply, decode_status
from inferd.wire.commands import Command, Reply
from inferd.wire.framing import LineSplitter
from inferd.wire.status import AnyStatus


class StatusStream:
    """Parser for the status frames of an admin socket."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def feed(self, data: bytes | bytearray) -> list[tuple[bytes, AnyStatus]]:
        """Add received bytes; return the complete frames, as bytes and decoded.

        Raises:
            ProtocolError: a frame is not a status, or says that this peer may not listen.
        """
        self._splitter.feed(data)
        frames: list[tuple[bytes, AnyStatus]] = []
        try:
            while (frame := self._splitter.next_frame()) is not None:
                frames.append((frame, _status(frame)))
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        return frames


def _status(frame: bytes) -> AnyStatus:
    try:
        return decode_status(frame)
    except InvalidFrameError:
        refusal = decode_reply(frame).error  # without a command: access was refused
        if refusal is UNSET:
            raise
    raise ProtocolError(refusal)


class _Kind(Struct):
    """The type of a frame."""

    type: str


_KIND: Final = msgspec.json.Decoder(_Kind)


class AdminExchange:
    """One command and its reply on an admin connection, without I/O."""

    def __init__(self, command: Command) -> None:
        self.line = encode_line(command)
        """The bytes to send."""
        self._splitter = LineSplitter()

    def feed(self, data: bytes | bytearray) -> Reply | None:
        """Add received bytes; return the reply, or ``None`` before it is complete.

        Status frames are skipped.

        Raises:
            ConnectionLostError: ``data`` is empty: the connection ended.
            ProtocolError: the bytes are not a frame of an admin socket.
        """
        if not data:
            raise ConnectionLostError("the daemon closed the connection")
        self._splitter.feed(data)
        try:
            while (frame := self._splitter.next_frame()) is not None:
                if _KIND.decode(frame).type == "reply":
                    return decode_reply(frame)
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        except DECODE_FAILURES as error:
            raise ProtocolError(f"decode: {error}") from error
        return None
