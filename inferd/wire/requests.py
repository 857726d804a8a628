"""What a client may send.

Unknown fields are ignored. ``null`` stands for an omitted field where the type allows
it. Ranges other than those of the wire's integer types are meaning, and so are checked
in ``resolve``.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from inferd.limits import U32_MAX

U32 = Annotated[int, Meta(ge=0, le=U32_MAX)]

Role = Literal["system", "user", "assistant"]


class ChatMessage(Struct, frozen=True):
    """One turn of a v1 conversation."""

    role: Role
    content: str


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """A v1 generation request, as it came."""

    id: str = ""
    """Echoed on every frame of the answer."""
    messages: list[ChatMessage]
    """The conversation, oldest first."""
    temperature: float | None = None
    """0 to 2; 0 always takes the likeliest token. Default 1.0."""
    top_p: float | None = None
    """Above 0, up to 1: keep the likeliest tokens of this total probability. Default 0.95."""
    top_k: U32 | None = None
    """Keep this many of the likeliest tokens; 0 keeps all. Default 64."""
    max_tokens: U32 | None = None
    """Longest answer in tokens. Default 1000."""
    stream: bool | None = None
    """False: the terminal frame alone. Default true."""
    image_token_budget: U32 | None = None
    """70, 140, 280, 560 or 1120; checked, and of no effect on text."""
    grammar: str = ""
    """GBNF that the answer must follow; empty for none."""


Request = GenerateRequest
"""Every request; a union as surfaces are added."""
