"""Answers as frames of the protocol, under the id that the caller has given the request."""

from collections.abc import Iterator

from msgspec.structs import replace

from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.one_frame import F, OneFrameAnswer
from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import encode
from inferd.wire.responses import ProgressFrame


def _is_progress(frame: DaemonFrame) -> bool:
    """Tell whether a frame comes to those who want progress alone.

    Text of speech that may still change comes to all, as over the daemon's sockets.
    """
    return isinstance(frame, ProgressFrame) and frame.status != "partial"


class FramesAnswer(GeneratedAnswer):
    """The frames of an answer, whatever its end.

    Args:
        request: as the caller sent it.
    """

    def __init__(self, request: BlocksRequest) -> None:
        super().__init__()
        self._id = request.id
        self._tells_progress = request.progress is True

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; yield its line."""
        match frame:
            case ClientBlocksDone(usage=usage):
                self._n_processed = usage.input_tokens
                self._n_output = usage.output_tokens
            case _:
                yield from super().add(frame)
        if self._tells_progress or not _is_progress(frame):
            yield encode(replace(frame, id=self._id))

    def _take(self, _: object) -> Iterator[bytes]:
        """Yield nothing: the whole frame is sent."""
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Yield nothing: the last frame says that it is the last."""
        yield from ()

    def whole(self) -> bytes:
        """Return nothing: each answer is a stream."""
        return b""


class OneFrame(OneFrameAnswer[F]):
    """An answer that is one frame.

    Args:
        kind: of the frame.
        request_id: as the caller named it.
    """

    def __init__(self, kind: type[F], request_id: str) -> None:
        super().__init__(kind)
        self._id = request_id

    def whole(self) -> bytes:
        """Return the frame's line."""
        assert self._frame is not None  # noqa: S101  # the client raises without one
        return encode(replace(self._frame, id=self._id))
