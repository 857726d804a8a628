"""Every failure a client can be told about.

- ``InferdError``
    - ``PeerError``: the client's doing
        - ``InvalidFrameError``: a line that is no request; ends the connection
        - ``FrameTooLargeError``: a line over the cap; ends the connection
        - ``InvalidRequestError``: a request that cannot be served as it stands
            - ``ContextOverflowError``: its prompt does not fit
        - ``AttachmentsTooLargeError``: a request with more media than it may have
        - ``AttachmentUnsupportedError``: media that no backend takes
    - ``BusyError``: try again
        - ``QueueFullError``
        - ``TooManyConnectionsError``: ends the connection
        - ``TooManyDescriptorsError``
    - ``BackendUnavailableError``: this request is lost, the daemon is not
        - ``BackendNotReadyError``
        - ``DrainingError``: ends the connection
        - ``UnservedError``: ends the connection
    - ``PermissionDeniedError``: not for this user; ends the connection
    - ``InternalError``: a bug, told by the number under which it was logged
    - ``EmbedUnsupportedError``, ``RerankUnsupportedError``
    - ``EndedError``: it was ended before its answer began
        - ``DeadlineExceededError``
        - ``CancelledError``: where the answer is one frame

``GenerateError`` and ``EmbedError`` are what the methods of ``Backend`` raise: unions
of the above, by inheritance.
"""

from enum import StrEnum
from typing import ClassVar


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


class InferdError(Exception):
    """A failure with a place on the wire; its text is for the caller."""

    code: ClassVar[ErrorCode]
    closes_connection: ClassVar[bool] = False
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """The sentence that the error frame carries."""
        return str(self)


class GenerateError(InferdError):
    """What ``Backend.generate`` and ``generate_v2`` raise."""


class EmbedError(InferdError):
    """What ``Backend.embed`` and ``rerank`` raise."""


class PeerError(GenerateError, EmbedError):
    """The client sent what cannot be served."""

    code = ErrorCode.INVALID_REQUEST


class InvalidFrameError(PeerError):
    """A line that is not a request: the id is unknown and the stream not trusted."""

    closes_connection = True

    @property
    def message(self) -> str:
        """The sentence that the error frame carries, marked as of the decode class."""
        return f"decode: {self}"


class FrameTooLargeError(PeerError):
    """More bytes without a newline than the cap allows: there is no next frame."""

    code = ErrorCode.FRAME_TOO_LARGE
    closes_connection = True


class InvalidRequestError(PeerError):
    """A request that reads well and means nothing that can be done."""

    @property
    def message(self) -> str:
        """The sentence that the error frame carries, marked as of the semantic class."""
        return f"invalid request: {self}"


class ContextOverflowError(InvalidRequestError):
    """The prompt leaves no room for a single token of the answer.

    Attributes:
        prompt_tokens: tokens of the rendered prompt.
        n_ctx: tokens one request may take, prompt and answer together.
        tokens_over: tokens to drop before it fits.
        at_least: whether the prompt was too long to be counted to its end, and both
            may be more.
    """

    def __init__(
        self, prompt_tokens: int, n_ctx: int, *, at_least: bool = False
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.n_ctx = n_ctx
        self.tokens_over = prompt_tokens + 1 - n_ctx
        self.at_least = at_least
        bound = "at least " if at_least else ""
        super().__init__(
            f"the prompt has {bound}{prompt_tokens} tokens and the context {n_ctx}: "
            f"{bound}{self.tokens_over} too many, counting one for the answer"
        )


class AttachmentsTooLargeError(PeerError):
    """More bytes of attachments than one request may carry."""

    code = ErrorCode.FRAME_TOO_LARGE


class AttachmentUnsupportedError(PeerError):
    """An attachment of a kind that no backend takes."""

    code = ErrorCode.ATTACHMENT_UNSUPPORTED


class BusyError(InferdError):
    """Nothing is wrong but the moment."""

    retryable = True


class QueueFullError(BusyError):
    """As many requests are running and waiting as may, or as much of them.

    Attributes:
        depth: requests that wait.
        retry_after_ms: milliseconds after which there may be a place, if that is known.
    """

    code = ErrorCode.QUEUE_FULL

    def __init__(self, *, depth: int, retry_after_ms: int | None = None) -> None:
        self.depth = depth
        self.retry_after_ms = retry_after_ms
        super().__init__("queue full")


class TooManyConnectionsError(BusyError):
    """As many clients are connected as may; it concerns no request."""

    code = ErrorCode.QUEUE_FULL
    closes_connection = True

    def __init__(self) -> None:
        super().__init__("too many connections")


class TooManyDescriptorsError(BusyError):
    """There is no room for the descriptors that came with the line."""

    code = ErrorCode.QUEUE_FULL

    def __init__(self) -> None:
        super().__init__("too many descriptors")


class BackendUnavailableError(GenerateError, EmbedError):
    """No backend can serve this now, or the one that ran it died."""

    code = ErrorCode.BACKEND_UNAVAILABLE
    retryable = True


class BackendNotReadyError(BackendUnavailableError):
    """The backend is not ready, and will not be soon."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(
            f"backend not ready: {reason}" if reason else "backend not ready"
        )


class DrainingError(BackendUnavailableError):
    """The daemon is going down and takes nothing new."""

    closes_connection = True

    def __init__(self) -> None:
        super().__init__("admission closed: the daemon is draining")


class UnservedError(BackendUnavailableError):
    """Whoever holds this socket open, no backend serves it."""

    closes_connection = True

    def __init__(self, leaf: str) -> None:
        super().__init__(f"no backend serves {leaf}")


class PermissionDeniedError(InferdError):
    """The socket is not for this user, or not any more."""

    code = ErrorCode.PERMISSION_DENIED
    closes_connection = True

    def __init__(self, uid: int, socket: str) -> None:
        super().__init__(f"uid {uid} may not use {socket}")


class InternalError(GenerateError, EmbedError):
    """A bug, or a backend that broke its word."""

    code = ErrorCode.INTERNAL


class EmbedUnsupportedError(EmbedError):
    """This backend makes no embeddings."""

    code = ErrorCode.EMBED_UNSUPPORTED

    def __init__(self) -> None:
        super().__init__("embed not supported by this backend")


class RerankUnsupportedError(EmbedError):
    """This backend scores no documents."""

    code = ErrorCode.RERANK_UNSUPPORTED

    def __init__(self) -> None:
        super().__init__("rerank not supported by this backend")


class EndedError(InferdError):
    """The request was ended before the first frame of its answer."""


class DeadlineExceededError(EndedError):
    """The time that the request allowed itself is over."""

    code = ErrorCode.DEADLINE_EXCEEDED

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(f"no answer began within {deadline_ms} ms")


class CancelledError(EndedError):
    """Somebody cancelled a request whose answer is one frame."""

    code = ErrorCode.CANCELLED

    def __init__(self) -> None:
        super().__init__("the request was cancelled")
