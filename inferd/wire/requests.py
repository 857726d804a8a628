"""What a client may send on the sockets for text, embeddings and scores.

Unknown fields are ignored. ``null`` stands for an omitted field where the type allows
it. Ranges other than those of the wire's integer types are meaning, and so are checked
in ``resolve``. ``blocks`` has the requests with typed content.
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
    stop: list[str] | None = None
    """Up to 16 texts of 1 to 256 bytes, each of which ends the answer and is left out."""
    seed: U32 | None = None
    """Of the sampler, 0 to 4294967294; omitted: drawn, and told in ``done``."""
    progress: bool | None = None
    """True: ``status`` frames tell the place in the queue and how far the prompt is."""


class EmbedRequest(Struct, frozen=True, kw_only=True):
    """Texts to turn into vectors."""

    id: str = ""
    """Echoed on the answer."""
    input: list[str]
    """1 to 2048 texts, none empty."""
    dimensions: U32 | None = None
    """Keep this many leading numbers of each vector; default all."""
    task: str | None = None
    """What the vectors are for, where the model knows tasks: ``retrieval_query``,
    ``retrieval_document``, ``similarity``, ``classification``, ``clustering``,
    ``question_answering``, ``fact_verification`` or ``code_retrieval_query``."""


class RerankRequest(Struct, frozen=True, kw_only=True):
    """Documents to order by how well they answer a query."""

    id: str = ""
    """Echoed on the answer."""
    query: str
    """Not empty."""
    documents: list[str]
    """1 to 256 texts, none empty; with the query at most 8 MiB."""
    top_n: U32 | None = None
    """Give the best so many only; at least 1, default all."""


class CancelLine(Struct, frozen=True, kw_only=True):
    """Ends the requests of this id that run or wait on the same connection."""

    type: Literal["cancel"] = "cancel"
    id: str
