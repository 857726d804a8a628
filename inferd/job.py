"""Work for a backend: every choice made, nothing optional left.

A job is what ``resolve`` makes of a request and what travels to a worker.
"""

from msgspec import Struct

from inferd.wire.requests import ChatMessage


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen."""

    temperature: float
    """0 to 2; 0 takes the likeliest token."""
    top_p: float
    """Above 0, up to 1."""
    top_k: int
    """0 keeps all tokens."""
    seed: int
    """0 to 2**32 - 2."""
    grammar: str = ""
    """GBNF with a ``root`` rule; empty for none."""


class GenerateJob(Struct, frozen=True, kw_only=True):
    """One answer to write."""

    messages: list[ChatMessage]
    max_tokens: int
    sampling: Sampling
