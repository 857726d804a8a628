"""The records by which the HTTP shell serves an API: its routes and its forms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from inferd.bridge.identity.token import Scope
from inferd.bridge.recordings.form import Form
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import NO_QUERY, QueryForm
from inferd.bridge.translation.question import Asked, Question, StreamForm
from inferd.wire.offered_facts import OfferedFacts

B = TypeVar("B")


@dataclass(frozen=True)
class OfferedModel:
    """A name that requests may use for a model, and what they may use it for."""

    name: str
    uses: tuple[str, ...]
    """``generate``, ``embed``, ``rerank`` and ``transcribe``, as far as the model does it."""
    facts: OfferedFacts | None = None
    """What else the daemon tells of it; ``None`` if that is nothing."""


@dataclass(frozen=True)
class AnyOperation(Generic[B]):
    """A route that is answered by the daemon; its base, whatever its requests are.

    Args:
        path: of the route; its method is POST.
        also: other paths of the same route, by which other servers have it.
        ask: translates a request; raises ``BridgeError``.
        table: the fields of its requests.
        stream: the form of streamed answers, where there are any.
        body: the type of the honoured fields, for the description.
        answer: the type of an answer that is not streamed, for the description.
        texts: media types of answers that are texts, for the description.
    """

    path: str
    ask: Callable[[B, Asked], Question]
    table: FieldTable
    stream: StreamForm | None = None
    body: type[Struct] | None = None
    answer: object = dict[str, object]
    also: tuple[str, ...] = ()
    texts: Sequence[str] = ()
    content_type: ClassVar[str]
    """Media type of its requests."""


class Operation(AnyOperation[bytes]):
    """A route whose requests are JSON."""

    content_type = "application/json"


class LiveOperation(Operation):
    """A route whose requests are a line, and lines of sound that follow while it is answered.

    It is described by its first line: OpenAPI has no form for lines.
    """


class FormOperation(AnyOperation[Form]):
    """A route whose requests are forms with a recording."""

    content_type = "multipart/form-data"


@dataclass(frozen=True)
class Lookup:
    """A route that is answered with what is known of models, without a request.

    Args:
        method: of the route.
        path: of the route.
        answer: makes the answer of the body, the models and the time at which the bridge
            began, in seconds since 1970; raises ``BridgeError``.
        summary: a sentence, without its full stop.
        note: what the reference says of the answer.
        asks_models: whether it needs the models.
        table: the fields of its body; without one no body is read.
        body: the type of the honoured fields, for the description.
        reasons: why it may be refused.
        is_refused: whether it always is.
    """

    method: str
    path: str
    answer: Callable[[bytes, Sequence[OfferedModel], int], bytes]
    summary: str
    note: str = ""
    asks_models: bool = True
    table: FieldTable | None = None
    body: type[Struct] | None = None
    reasons: tuple[Reason, ...] = ()
    is_refused: bool = False
    content_type: ClassVar[str] = "application/json"


@dataclass(frozen=True, kw_only=True)
class HostedOperation:
    """A route that the bridge answers itself."""

    method: str
    path: str
    action: str
    """What its service calls it."""
    summary: str
    """A sentence, without its full stop."""
    table: FieldTable | None = None
    """The fields of its requests; ``None`` where they have no body."""
    body: type[Struct] | None = None
    """The type of the honoured fields."""
    query: QueryForm = NO_QUERY
    """What it takes behind its path."""
    answer: object = dict[str, object]
    """The type of its answer, for the description."""
    stream: StreamForm | None = None
    texts: Sequence[str] = ()
    """Media types of answers that are texts, for the description."""
    reasons: tuple[Reason, ...] = ()
    """Why it may fail, beside what any route of its sort fails for."""
    scope: Scope = "inference"
    """What the token of a caller must allow."""
    content_type: ClassVar[str] = "application/json"


class ModelList(Protocol):
    """The form of a list of models."""

    def __call__(
        self, models: Sequence[OfferedModel], created_s: int, query: bytes = b""
    ) -> bytes:
        """Return the body of the list.

        Raises:
            BridgeError: a parameter behind the path is refused.
        """


class ModelEntry(Protocol):
    """The form of one model."""

    def __call__(self, model: OfferedModel, created_s: int) -> bytes:
        """Return the body of one entry."""


@dataclass(frozen=True, kw_only=True)
class Api:
    """An API: who adds one writes a package with this record, and a line in ``apis``."""

    name: str
    """As in the log and the metrics."""
    prefixes: tuple[str, ...]
    """Beginnings of its paths; failures below them have its form."""
    own_header: str = ""
    """A header that its clients alone send, by which paths that APIs share are told apart."""
    operations: Sequence[Operation | FormOperation] = ()
    managed: Sequence[ManagedOperation] = ()
    """Routes that the helper answers."""
    hosted: Sequence[HostedOperation] = ()
    """Routes that the bridge answers itself."""
    parts: Sequence[FieldTable] = ()
    """The tables of objects within requests."""
    lookups: Sequence[Lookup] = ()
    error_body: Callable[[BridgeError], bytes]
    """The body of a failure."""
    failure: object = dict[str, object]
    """The type of that body, for the description."""
    models_path: str = ""
    """The route of the list of models; one model's is below it."""
    models_also: tuple[str, ...] = ()
    """Other paths of that route."""
    query: QueryForm
    """What its routes take behind the path, but for the list of models."""
    models_query: QueryForm | None = None
    """What that list takes."""
    model_list: ModelList | None = None
    model_entry: ModelEntry | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every answer."""
