"""One connection's exchanges without its I/O: requests out, responses in.

A shell sends what ``start`` gives and feeds what it reads until ``is_over``; then the
next exchange may start on the same connection.
"""

from inferd.errors import ErrorCode, FrameTooLargeError, InvalidFrameError
from inferd.wire.codec import decode_response, decode_status, encode
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import GenerateRequest
from inferd.wire.responses import ErrorFrame, Response, Terminal
from inferd.wire.status import AnyStatus


class ClientError(Exception):
    """A request did not end as it should."""


class RequestFailedError(ClientError):
    """The daemon ended the request with an error frame.

    Attributes:
        frame: as it came, with ``code``, ``message`` and what goes with them.
    """

    def __init__(self, frame: ErrorFrame) -> None:
        self.frame = frame
        super().__init__(f"{frame.code.value}: {frame.message}")

    @property
    def code(self) -> ErrorCode:
        """The kind of failure."""
        return self.frame.code


class ConnectionLostError(ClientError):
    """The connection ended before the terminal frame."""


class ProtocolError(ClientError):
    """The daemon said what this protocol does not know."""


class Exchange:
    """The state of one connection."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._id: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether no answer is due."""
        return self._id is None

    def start(self, request: GenerateRequest) -> bytes:
        """Begin an exchange; give the bytes to send.

        Raises:
            ClientError: the last answer is not complete, or the request is too large.
        """
        if not self.is_over:
            raise ClientError("the answer to the last request is not complete")
        try:
            data = encode(request)
        except FrameTooLargeError as error:
            raise ClientError(error.message) from error
        except UnicodeEncodeError as error:
            raise ClientError("the request holds what is no text") from error
        self._id = request.id
        return data

    def feed(self, data: bytes | bytearray) -> list[Response]:
        """Add what was read; give the responses that are whole. No bytes mean the end.

        Raises:
            ConnectionLostError: it ended before the terminal frame.
            ProtocolError: what came is no response, or not to our request.
        """
        if not data:
            raise ConnectionLostError("the daemon closed the connection")
        self._splitter.feed(data)
        responses: list[Response] = []
        try:
            while (frame := self._splitter.next_frame()) is not None:
                responses.append(self._take(decode_response(frame)))
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        return responses

    def _take(self, response: Response) -> Response:
        is_about_connection = isinstance(response, ErrorFrame) and response.id == ""
        if self._id is None or (response.id != self._id and not is_about_connection):
            raise ProtocolError(
                f"a frame for request {response.id!r}, which is not ours"
            )
        if isinstance(response, Terminal):
            self._id = None
        return response


class StatusStream:
    """The frames of an admin socket, without its I/O."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def feed(self, data: bytes | bytearray) -> list[tuple[bytes, AnyStatus]]:
        """Add what was read; give the frames that are whole, as bytes and as read.

        Raises:
            ProtocolError: what came is no status.
        """
        self._splitter.feed(data)
        frames: list[tuple[bytes, AnyStatus]] = []
        try:
            while (frame := self._splitter.next_frame()) is not None:
                frames.append((frame, decode_status(frame)))
        except (InvalidFrameError, FrameTooLargeError) as error:
            raise ProtocolError(error.message) from error
        return frames
