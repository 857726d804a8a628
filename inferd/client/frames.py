"""The frames that a client decodes, from a daemon of any version.

They are the frames of ``wire.responses``, under the same names with ``Client`` before them,
except that an enumeration that a later daemon may extend is a plain string here.
"""

from msgspec import UNSET, UnsetType

from inferd.wire.responses import (
    AnswerWarning,
    BlockFrame,
    BlocksDone,
    DoneFrame,
    ErrorFrame,
    ProgressFrame,
    TokenFrame,
)


class ClientErrorFrame(ErrorFrame, frozen=True, kw_only=True):
    """The terminal frame of a failed request."""

    code: str  # type: ignore[assignment]  # wider than in wire.responses
    """One of ``inferd.errors.ErrorCode``, or a later daemon's."""


class ClientDoneFrame(DoneFrame, frozen=True, kw_only=True):
    """The terminal frame of a v1 answer."""

    stop_reason: str  # type: ignore[assignment]  # wider, as above


class ClientAnswerWarning(AnswerWarning, frozen=True, kw_only=True):
    """A warning about the answer."""

    code: str  # type: ignore[assignment]  # wider, as above


class ClientBlocksDone(BlocksDone, frozen=True, kw_only=True):
    """The terminal frame of a v2 answer."""

    stop_reason: str  # type: ignore[assignment]  # wider, as above
    detail: str | UnsetType = UNSET  # type: ignore[assignment]  # wider, as above
    warnings: list[ClientAnswerWarning] | UnsetType = UNSET  # type: ignore[assignment]


TextAnswer = TokenFrame | ProgressFrame | ClientDoneFrame
BlocksAnswer = BlockFrame | ProgressFrame | ClientBlocksDone
