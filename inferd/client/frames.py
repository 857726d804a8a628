"""What a client reads, from a daemon of any version.

These are the frames of ``wire.responses``. Where a later daemon may say what we have not
heard of, the field is a plain string here.
"""

from msgspec import UNSET, UnsetType

from inferd.wire.responses import (
    AnswerWarning,
    BlockFrame,
    BlocksDone,
    DoneFrame,
    EmbeddingsFrame,
    ErrorFrame,
    ProgressFrame,
    RerankFrame,
    TokenFrame,
)


class Failure(ErrorFrame, frozen=True, kw_only=True):
    """The end of a request that failed."""

    code: str  # type: ignore[assignment]  # wider than what our own daemon says
    """One of ``inferd.errors.ErrorCode``, or a later daemon's."""


class Done(DoneFrame, frozen=True, kw_only=True):
    """The end of a v1 answer."""

    stop_reason: str  # type: ignore[assignment]  # wider, as above


class Warned(AnswerWarning, frozen=True, kw_only=True):
    """Something about the answer."""

    code: str  # type: ignore[assignment]  # wider, as above


class DoneBlocks(BlocksDone, frozen=True, kw_only=True):
    """The end of a v2 answer."""

    stop_reason: str  # type: ignore[assignment]  # wider, as above
    detail: str | UnsetType = UNSET  # type: ignore[assignment]  # wider, as above
    warnings: list[Warned] | UnsetType = UNSET  # type: ignore[assignment]  # as above


TextAnswer = TokenFrame | ProgressFrame | Done
BlocksAnswer = BlockFrame | ProgressFrame | DoneBlocks
Answer = TextAnswer | BlocksAnswer | EmbeddingsFrame | RerankFrame
