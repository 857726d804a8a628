"""What clients ask of a server at once, and what they saw come."""

from typing import Any

from msgspec import Struct


class Ask(Struct, frozen=True, kw_only=True):
    """One request, on a connection of its own."""

    turns: list[tuple[str, str]]
    """Roles and texts, oldest first."""
    max_tokens: int
    is_forced: bool = True
    """Whether the answer has exactly so many tokens."""
    schema: dict[str, Any] | None = None
    """What the answer is held to."""
    after_pieces: int = 0
    """Pieces of the first request's answer after which this one is sent."""
    hangs_up: bool = False
    """Whether its answer is not awaited: the client leaves when all others are done."""


class Answer(Struct, frozen=True, kw_only=True):
    """What came. Moments are seconds of the monotonic clock, one for all processes."""

    sent_at: float
    times: list[float]
    """When each piece of text was there."""
    lengths: list[int]
    """Characters of each."""
    text: str
    n_prompt: int = 0
    """Tokens of the prompt, or 0 if the server did not tell."""
    n_cached: int = 0
    """Of these, tokens that it remembered."""
    n_tokens: int = 0
    """Tokens of the answer; its pieces if the server did not tell."""


class Scene(Struct, frozen=True, kw_only=True):
    """Requests to one server."""

    kind: str
    """``inferd``, ``http`` for a server that speaks as OpenAI's, ``bridge``,
    or ``library``, the client library at the daemon's sockets."""
    address: str
    """A directory of sockets, or ``host:port``."""
    asks: list[Ask]
