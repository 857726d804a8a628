"""Answers that come in one frame, of which there are no streams."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from inferd.bridge.translation.question import DaemonFrame
from inferd.wire.responses import EmbeddingsFrame, RerankFrame

F = TypeVar("F", bound=EmbeddingsFrame | RerankFrame)


class OneFrameAnswer(Generic[F]):
    """The base of answers that are one frame; a form adds ``whole``.

    Args:
        kind: of the frame.
    """

    def __init__(self, kind: type[F]) -> None:
        self._kind = kind
        self._frame: F | None = None

    @property
    def has_enough(self) -> bool:
        """Always false: it is one frame."""
        return False

    @property
    def n_tokens(self) -> int:
        """Tokens of what was asked."""
        return self._frame.usage.input_tokens if self._frame else 0

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take the frame."""
        if isinstance(frame, self._kind):
            self._frame = frame
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Yield nothing."""
        yield from ()
