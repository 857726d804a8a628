"""The errors that the daemon reports to clients, as one class hierarchy.

- ``InferdError``
    - ``PeerError``: caused by the client
        - ``InvalidFrameError``: a line that is not a request; closes the connection
        - ``FrameTooLargeError``: a line over the size limit; closes the connection
        - ``InvalidRequestError``: a well-formed request that cannot be executed
            - ``ContextOverflowError``: the prompt does not fit the context
        - ``AttachmentsTooLargeError``: a request with too many bytes of media
        - ``AttachmentUnsupportedError``: media that no backend accepts
    - ``BusyError``: the daemon is at a limit; retry later
        - ``QueueFullError``
        - ``TooManyConnectionsError``: closes the connection
        - ``TooManyDescriptorsError``
    - ``BackendUnavailableError``: this request failed; the daemon still runs
        - ``BackendNotReadyError``
        - ``DrainingError``: closes the connection
        - ``UnservedError``: closes the connection
        - ``NotStartedError``: closes the connection
    - ``PermissionDeniedError``: the user may not use the socket; closes the connection
    - ``PrincipalDeniedError``: the user may not say who is asking
    - ``InternalError``: a bug; its text has the number under which it was logged
    - ``ModelNotFoundError``: no backend of that name can do what is asked
    - ``EmbedUnsupportedError``, ``RerankUnsupportedError``
    - ``EndedError``: the request was ended before its answer began
        - ``DeadlineExceededError``
        - ``CancelledError``: only where the answer is one frame

``GenerateError`` and ``EmbedError`` are the types that the methods of ``Backend`` raise:
unions of the above, by inheritance.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final

from inferd.limits.protocol import NO_MODEL

DAEMON_STOPS: Final = "the daemon is going down"
"""Why work that the end of the daemon cuts short fails."""
MAX_REASON_CHARS: Final = 1000
"""Characters of the reason of a failed start that clients are told: the text of some
configuration errors, which fits the send buffer of a fresh connection."""


class ErrorCode(StrEnum):
    """The ``code`` of an error frame."""

    QUEUE_FULL = "queue_full"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    INVALID_REQUEST = "invalid_request"
    FRAME_TOO_LARGE = "frame_too_large"
    INTERNAL = "internal"
    EMBED_UNSUPPORTED = "embed_unsupported"
    RERANK_UNSUPPORTED = "rerank_unsupported"
    ATTACHMENT_UNSUPPORTED = "attachment_unsupported"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    PERMISSION_DENIED = "permission_denied"
    MODEL_NOT_FOUND = "model_not_found"


class InferdError(Exception):
    """An error that the protocol can report; its text is meant for the client."""

    code: ClassVar[ErrorCode]
    closes_connection: ClassVar[bool] = False
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """The sentence that the error frame carries."""
        return str(self)


class GenerateError(InferdError):
    """Base of the errors that ``Backend.generate`` and ``generate_v2`` raise."""


class EmbedError(InferdError):
    """Base of the errors that ``Backend.embed`` and ``rerank`` raise."""


class PeerError(GenerateError, EmbedError):
    """The client sent something that cannot be served.

    A subclass that is raised while a request is decoded or resolved takes its text as its
    only argument: for a large line it comes from another process, by name and text.
    """

    code = ErrorCode.INVALID_REQUEST


class InvalidFrameError(PeerError):
    """The line is not a valid request; its id is unknown, so the connection is closed."""

    closes_connection = True

    @property
    def message(self) -> str:
        """The sentence that the error frame carries, prefixed with ``decode:``."""
        return f"decode: {self}"


class FrameTooLargeError(PeerError):
    """The line is longer than the limit, so the start of the next one is unknown."""

    code = ErrorCode.FRAME_TOO_LARGE
    closes_connection = True


class InvalidRequestError(PeerError):
    """The request is well-formed but cannot be executed."""

    @property
    def message(self) -> str:
        """The sentence that the error frame carries, prefixed with ``invalid request:``."""
        return f"invalid request: {self}"


class ContextOverflowError(InvalidRequestError):
    """The prompt fills the context, so that no token of the answer fits.

    Attributes:
        prompt_tokens: tokens of the rendered prompt.
        n_ctx: tokens one request may take, prompt and answer together.
        tokens_over: tokens to remove so that it fits.
        at_least: whether the prompt was too long to be counted to its end, so that
            ``prompt_tokens`` and ``tokens_over`` are lower bounds.
    """

    def __init__(
        self,
        prompt_tokens: int,
        n_ctx: int,
        *,
        at_least: bool = False,
        answer_tokens: int = 1,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx
        self.tokens_over = prompt_tokens + answer_tokens - n_ctx
        self.at_least = at_least
        bound = "at least " if at_least else ""
        counted = "one" if answer_tokens == 1 else str(answer_tokens)
        super().__init__(
            f"the prompt has {bound}{prompt_tokens} tokens and the context {n_ctx}: "
            f"{bound}{self.tokens_over} too many, counting {counted} for the answer"
        )


class AttachmentsTooLargeError(PeerError):
    """The attachments have more bytes than one request may have."""

    code = ErrorCode.FRAME_TOO_LARGE


class AttachmentUnsupportedError(PeerError):
    """An attachment has a kind that no backend accepts."""

    code = ErrorCode.ATTACHMENT_UNSUPPORTED


class BusyError(InferdError):
    """The daemon is at a limit now; the same request may succeed later."""

    retryable = True


class QueueFullError(BusyError):
    """A limit shared by requests is reached: on waiting ones, their tokens, bytes or media.

    Attributes:
        depth: requests that wait.
        retry_after_ms: estimated milliseconds until a request may be accepted; ``None``
            if unknown.
    """

    code = ErrorCode.QUEUE_FULL

    def __init__(self, *, depth: int, retry_after_ms: int | None = None) -> None:
        self.depth = depth
        self.retry_after_ms = retry_after_ms
        super().__init__("queue full")


class TooManyConnectionsError(BusyError):
    """The limit on connections is reached; the error belongs to no request.

    It has no ``retry_after_ms``: when a connection ends is unknown.
    """

    code = ErrorCode.QUEUE_FULL
    closes_connection = True

    def __init__(self) -> None:
        super().__init__("too many connections")


class TooManyDescriptorsError(BusyError):
    """The limit on open file descriptors is reached by those sent with the line."""

    code = ErrorCode.QUEUE_FULL

    def __init__(self) -> None:
        super().__init__("too many descriptors")


class BackendUnavailableError(GenerateError, EmbedError):
    """No backend can serve this request now, or the one that ran it died.

    Attributes:
        retry_after_ms: milliseconds after which a remote engine may serve it, by its own
            word, or is tried again after failures; ``None`` if nobody knows.
    """

    code = ErrorCode.BACKEND_UNAVAILABLE
    retryable = True

    def __init__(self, text: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class BackendNotReadyError(BackendUnavailableError):
    """The backend is not ready and will not be soon."""

    def __init__(self, reason: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(
            f"backend not ready: {reason}" if reason else "backend not ready",
            retry_after_ms=retry_after_ms,
        )


class DrainingError(BackendUnavailableError):
    """The daemon is shutting down and accepts no new requests."""

    closes_connection = True

    def __init__(self) -> None:
        super().__init__("admission closed: the daemon is draining")


class UnservedError(BackendUnavailableError):
    """No configured backend serves this socket."""

    closes_connection = True

    def __init__(self, leaf: str) -> None:
        super().__init__(f"no backend serves {leaf}")


class NotStartedError(BackendUnavailableError):
    """The daemon did not start; its service manager may start it again."""

    closes_connection = True

    def __init__(self, reason: str) -> None:
        if len(reason) > MAX_REASON_CHARS:
            reason = f"{reason[: MAX_REASON_CHARS - 1]}…"
        super().__init__(f"the daemon did not start: {reason}")


class PermissionDeniedError(InferdError):
    """The user may not use this socket, or no longer may."""

    code = ErrorCode.PERMISSION_DENIED
    closes_connection = True

    def __init__(self, uid: int, socket: str) -> None:
        super().__init__(f"uid {uid} may not use {socket}")


class PrincipalDeniedError(InferdError):
    """The request has a ``principal``, and its user is not a gateway."""

    code = ErrorCode.PERMISSION_DENIED

    def __init__(self, uid: int) -> None:
        super().__init__(f"uid {uid} is not a gateway, so principal is not allowed")


class ModelNotFoundError(InferdError):
    """The request names a model that is not served, or that cannot do what is asked.

    Attributes:
        models: names of models that can do it, at most ``MAX_LISTED_MODELS``.
        described: facts about these models, where the request asks for them.
        is_asked_for: whether the request asks for these names.
    """

    code = ErrorCode.MODEL_NOT_FOUND

    def __init__(self, model: str, reason: str, models: Sequence[str]) -> None:
        self.models = [*models]
        self.described: Sequence[object] = ()
        self.is_asked_for = model == NO_MODEL
        names = ", ".join(models)
        can = (
            f"names that can do this: {names}" if names else "no model here can do this"
        )
        super().__init__(f'model "{model}" {reason}; {can}')


class InternalError(GenerateError, EmbedError):
    """A bug in the daemon, or a backend that violated its protocol."""

    code = ErrorCode.INTERNAL


class EmbedUnsupportedError(EmbedError):
    """The backend cannot compute embeddings."""

    code = ErrorCode.EMBED_UNSUPPORTED

    def __init__(self) -> None:
        super().__init__("embed not supported by this backend")


class RerankUnsupportedError(EmbedError):
    """The backend cannot rerank documents."""

    code = ErrorCode.RERANK_UNSUPPORTED

    def __init__(self) -> None:
        super().__init__("rerank not supported by this backend")


class EndedError(InferdError):
    """The request ended before the first frame of its answer."""


class DeadlineExceededError(EndedError):
    """The deadline of the request passed before its answer began."""

    code = ErrorCode.DEADLINE_EXCEEDED

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(f"no answer began within {deadline_ms} ms")


class CancelledError(EndedError):
    """A request whose answer is one frame was cancelled."""

    code = ErrorCode.CANCELLED

    def __init__(self) -> None:
        super().__init__("the request was cancelled")
