"""Work for a backend: every choice made, nothing optional left.

A job is what ``resolve`` makes of a request and what travels to a worker.
"""

from msgspec import Struct

from inferd.wire.requests import ChatMessage


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen.

    ``None`` stands for what the model recommends, else for the wire's default.
    """

    temperature: float | None
    """0 to 2; 0 takes the likeliest token."""
    top_p: float | None
    """Above 0, up to 1."""
    top_k: int | None
    """0 keeps all tokens."""
    seed: int
    """0 to 2**32 - 2."""
    min_p: float | None = None
    """0 to 1; 0 keeps all tokens."""
    repeat_penalty: float = 1.0
    """Above 0, up to 2; 1 for none."""
    presence_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    frequency_penalty: float = 0.0
    """-2 to 2; 0 for none."""
    logit_bias: dict[int, float] = {}
    """Token id to what is added to its score."""
    grammar: str = ""
    """GBNF with a ``root`` rule; empty for none."""


class GenerateJob(Struct, frozen=True, kw_only=True, tag="generate"):
    """One answer to write."""

    messages: list[ChatMessage]
    max_tokens: int
    min_tokens: int = 0
    """Tokens before which the model cannot end its turn."""
    sampling: Sampling
    stops: tuple[str, ...] = ()
    """Texts that end the answer; found by the daemon, which drops the job then."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the answer."""
    n_alternatives: int = 0
    """Log probabilities wanted for each token; 0 for none at all."""
    calls_tools: bool = True
    """Whether what looks like a call is one, or text."""
    prefill_only: bool = False
    """Read the prompt and write nothing."""
    wants_progress: bool = False
    """Whether to tell how far the prompt is."""


class EmbedJob(Struct, frozen=True, kw_only=True, tag="embed"):
    """Texts to turn into vectors."""

    texts: list[str]
    dimensions: int | None
    """Leading numbers to keep; ``None`` for all."""
    task: str | None


class RerankJob(Struct, frozen=True, kw_only=True, tag="rerank"):
    """Documents to score against a query."""

    query: str
    documents: list[str]


Job = GenerateJob | EmbedJob | RerankJob
