"""What the daemon may answer on an inference socket."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from inferd.errors import ErrorCode

StopReason = Literal["end", "length", "cancelled", "error"]


class Usage(Struct, frozen=True):
    """What a generation cost, in tokens."""

    prompt_tokens: int
    completion_tokens: int


class TokenFrame(Struct, frozen=True, kw_only=True, tag="token", tag_field="type"):
    """A piece of the answer."""

    id: str
    content: str


class DoneFrame(Struct, frozen=True, kw_only=True, tag="done", tag_field="type"):
    """The end of an answer; ``content`` is all of it, streamed or not."""

    id: str
    content: str
    usage: Usage
    stop_reason: StopReason
    backend: str


class ErrorFrame(Struct, frozen=True, kw_only=True, tag="error", tag_field="type"):
    """The end of a request that failed."""

    id: str
    code: ErrorCode
    message: str
    prompt_tokens: int | UnsetType = UNSET
    """With a context overflow: tokens of the prompt."""
    n_ctx: int | UnsetType = UNSET
    """With a context overflow: tokens one request may take."""
    tokens_over: int | UnsetType = UNSET
    """With a context overflow: tokens to drop."""


Response = TokenFrame | DoneFrame | ErrorFrame
Terminal = DoneFrame | ErrorFrame
