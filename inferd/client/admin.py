"""The admin socket without its I/O: what it tells everybody, and one command's reply."""

from typing import Final

import msgspec
from msgspec import UNSET, Struct

from inferd.client.exchange import ConnectionLostError, ProtocolError, line_of
from inferd.errors import FrameTooLargeError, InvalidFrameError
from inferd.wire.codec import DECODE_FAILURES, decode_reply, decode_status
from inferd.wire.commands import Command, Reply
from inferd.wire.framing import LineSplitter
from inferd.wire.status import AnyStatus


class StatusStream:
    """The frames of an admin socket, without its I/O."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def feed(self, data: bytes | bytearray) -> list[tuple[bytes, AnyStatus]]:
        """Add what was read; give the frames that are whole, as bytes and as read.

        Raises:
            ProtocolError: what came is no status, or says that we may not listen.
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
        refusal = decode_reply(frame).error  # to no command: we may not listen
        if refusal is UNSET:
            raise
    raise ProtocolError(refusal)


class _Kind(Struct):
    """Any frame."""

    type: str


_KIND: Final = msgspec.json.Decoder(_Kind)


class Order:
    """One command on an admin connection, without its I/O."""

    def __init__(self, command: Command) -> None:
        self.line = line_of(command)
        """The bytes to send."""
        self._splitter = LineSplitter()

    def feed(self, data: bytes | bytearray) -> Reply | None:
        """Add what was read; give the reply, or ``None`` while it has not come.

        What the socket says to all its listeners is skipped.

        Raises:
            ConnectionLostError: there are no bytes, so the connection ended.
            ProtocolError: what came is no frame of an admin socket.
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
