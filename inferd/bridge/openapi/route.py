"""The record of a route, which the router and the description both follow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from inferd.bridge.identity.token import Scope
from inferd.bridge.translation.api import (
    Api,
    FormOperation,
    HostedOperation,
    Lookup,
    Operation,
)
from inferd.bridge.translation.failures import Reason
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import QueryForm

AnyRoute = Operation | FormOperation | ManagedOperation | HostedOperation
JSON: Final = "application/json"
ANY_OBJECT: Final[object] = dict[str, object]
_OF_HEADS: Final = (
    Reason.INVALID_REQUEST,
    Reason.FORBIDDEN,
    Reason.CODING,
    Reason.INTERNAL,
)
"""Failures that any request may have: its head is refused, or there is a bug."""
_OF_CALLERS: Final = (
    Reason.UNAUTHENTICATED,
    Reason.TOO_MANY_FAILURES,
    Reason.QUOTA,
    Reason.QUEUE_FULL,
    Reason.UNAVAILABLE,
)
"""Failures of routes that ask who calls."""
_OF_BODIES: Final = (Reason.TIMEOUT, Reason.TOO_LARGE)
"""Failures of routes that read a body."""

OF_THE_DAEMON: Final = (
    Reason.UNKNOWN_FIELD,
    Reason.UNSUPPORTED,
    Reason.CONTEXT_OVERFLOW,
    Reason.MODEL_NOT_FOUND,
    Reason.CANCELLED,
    Reason.DEADLINE,
)
"""Why the daemon or a translation may refuse a request."""
OF_THE_HELPER: Final = (
    Reason.UNKNOWN_FIELD,
    Reason.MODEL_NOT_FOUND,
    Reason.TOO_LARGE,
    Reason.QUEUE_FULL,
    Reason.NOT_CONFIGURED,
    Reason.NOT_DONE,
)
"""Why the helper may refuse a request."""


@dataclass(frozen=True, kw_only=True)
class HttpRoute:
    """A route of the bridge."""

    path: str
    """With parameters in braces, as ``/v1/models/{model:path}``."""
    name: str = ""
    """In the log and the metrics; the path, unless given."""
    method: str
    summary: str
    """A sentence, without its full stop."""
    scopes: tuple[Scope, ...] = ()
    """One of which a caller's token must have; none where no token is needed."""
    apis: tuple[Api, ...]
    """In whose form failures are told; several where a header decides."""
    operation: AnyRoute | None = None
    """Whose requests it takes, if it takes any."""
    lookup: Lookup | None = None
    """What it is answered with, if that is known without a request."""
    queries: tuple[QueryForm, ...] = ()
    """What it takes behind its path, one for each API where a header chooses; none where
    nothing is looked at."""
    answers: Mapping[str, object] = field(default_factory=lambda: {JSON: ANY_OBJECT})
    """The type of the body with status 200, by its media type."""
    reasons: tuple[Reason, ...] = ()
    """Why it fails, beside what any route of its sort fails for."""

    @property
    def takes(self) -> AnyRoute | Lookup | None:
        """What says which fields a body has, if it takes one."""
        for each in (self.lookup, self.operation):
            if each is not None and each.table is not None:
                return each
        return None

    @property
    def failures(self) -> tuple[Reason, ...]:
        """Why a request may fail, each reason once."""
        found = [*_OF_HEADS, *self.reasons]
        found += _OF_CALLERS if self.scopes else ()
        found += _OF_BODIES if self.takes else ()
        return tuple(dict.fromkeys(found))
