"""Requests on the v1, embed and rerank sockets.

Unknown fields are ignored, unless the request is ``strict``. ``null`` means an omitted field where the type allows it. Only
the ranges of integer types are checked here; all others in ``resolve``. Module ``blocks``
has the requests of v2.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from inferd.errors import InvalidFrameError
from inferd.limits.protocol import U32_MAX

U32 = Annotated[int, Meta(ge=0, le=U32_MAX)]

Role = Literal["system", "user", "assistant"]


VIA_HEADER: Final = "Inferd-Via"
"""The header in which ``via`` stands where a request goes through a bridge: ids with commas."""


class ChatMessage(Struct, frozen=True):
    """One turn of a v1 conversation."""

    role: Role
    content: str


class Request(Struct, frozen=True, kw_only=True):
    """Base of the requests of all inference sockets; it is decoded as one of them."""

    id: str
    """Echoed on every frame of the answer."""
    model: str | None = None
    """1 to 128 characters: the name or an alias of the backend that must answer. Default:
    the first that can do what is asked."""
    principal: str | None = None
    """1 to 128 printable characters: who is asking. Only for users whom the daemon's
    configuration names as gateways."""
    strict: bool | None = None
    """True: refuse the request if it has fields that are not known here. Default false:
    they are ignored."""
    keep_alive_s: float | None = None
    """0 to 2,592,000: seconds without a request after which a model that is loaded on demand
    may be unloaded, at most as many as configured; 0 for as many. Default: as configured."""
    min_n_ctx: U32 | None = None
    """Tokens of one request, or of one text, that the model must at least take. Default 0:
    any model will do."""
    describe: bool | None = None
    """True: if the request is refused with ``model_not_found``, the frame has ``described``.
    Default false."""
    via: list[str] | None = None
    """Up to 8 ids, of 1 to 64 characters: the daemons that have passed it on. One that finds
    its own id refuses it. Default: none."""

    def counts(self) -> dict[str, int]:
        """Count its parts, for the log; never with content."""
        return {}


class GenerateRequest(Request, frozen=True, kw_only=True):
    """A v1 generation request, as received."""

    id: str = ""
    """Echoed on every frame of the answer."""
    messages: list[ChatMessage]
    """The conversation, oldest first."""
    temperature: float | None = None
    """0 to 2; 0 always takes the most likely token. Default 1.0."""
    top_p: float | None = None
    """Above 0, up to 1: keep the most likely tokens of this total probability. Default
    0.95."""
    top_k: U32 | None = None
    """Keep this many of the most likely tokens; 0 keeps all. Default 64."""
    max_tokens: U32 | None = None
    """Longest answer in tokens. Default 1000."""
    stream: bool | None = None
    """False: send only the last frame, with the whole answer. Default true."""
    image_token_budget: U32 | None = None
    """70, 140, 280, 560 or 1120; checked, but without effect on text."""
    grammar: str = ""
    """GBNF grammar that the answer must follow; empty for none."""
    stop: list[str] | None = None
    """Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it."""
    seed: U32 | None = None
    """Seed of the sampler, 0 to 4294967294; if omitted, a random one, reported in
    ``done``."""
    progress: bool | None = None
    """True: send ``status`` frames with the position in the queue and the progress of the
    prompt."""


class EmbedRequest(Request, frozen=True, kw_only=True):
    """Texts to turn into vectors: exactly one of ``input`` and ``tokens``."""

    id: str = ""
    """Echoed on the answer."""
    input: list[str] | UnsetType = UNSET
    """1 to 2048 texts, none empty."""
    tokens: list[list[U32]] | None = None
    """1 to 2048 texts as ids of the model's own tokens, none empty. The special tokens that
    the model puts around a text are not added."""
    dimensions: U32 | None = None
    """How many numbers of each vector to keep, from its beginning; default all."""
    task: str | None = None
    """Purpose of the vectors, for models that distinguish tasks: ``retrieval_query``,
    ``retrieval_document``, ``similarity``, ``classification``, ``clustering``,
    ``question_answering``, ``fact_verification`` or ``code_retrieval_query``."""

    def counts(self) -> dict[str, int]:
        """Count the texts."""
        return {"n_inputs": len(self.tokens or self.input or ())}


def refuse_no_texts(request: EmbedRequest) -> None:
    """Reject a request with neither ``input`` nor ``tokens``.

    Raises:
        InvalidFrameError: it is such a request.
    """
    if request.input is UNSET and request.tokens is None:
        raise InvalidFrameError("Object missing required field `input`")


class RerankRequest(Request, frozen=True, kw_only=True):
    """Documents to order by how well they answer a query."""

    id: str = ""
    """Echoed on the answer."""
    query: str
    """The search text; not empty."""
    documents: list[str]
    """1 to 256 texts, none empty; with the query at most 8 MiB."""
    top_n: U32 | None = None
    """Return only this many of the best documents; at least 1, default all."""

    def counts(self) -> dict[str, int]:
        """Count the documents."""
        return {"n_documents": len(self.documents)}


class DescribeRequest(
    Request, frozen=True, kw_only=True, tag="describe", tag_field="type"
):
    """A question which models the socket serves; it is answered at once, without the queue."""

    id: str = ""
    """Echoed on the answer."""


class CancelLine(Struct, frozen=True, kw_only=True):
    """Cancels the requests with this id that run or wait on the same connection."""

    type: Literal["cancel"] = "cancel"
    id: str
    principal: str | UnsetType | None = UNSET
    """That of the requests, if they have one: those of others with this id go on."""
