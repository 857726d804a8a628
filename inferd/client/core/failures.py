"""The exceptions of the client library, one for each code of the protocol.

- ``ClientError``: the base of all
    - ``NoDaemonError``, ``UntrustedServerError``: nothing was sent
    - ``ConnectionLostError``: the connection ended before the answer
    - ``ProtocolError``: the answer is not of this protocol
    - ``RequestTimeout``: nothing came for ``timeout`` seconds
    - ``AnswerNotOfType``: the answer is not of the type that was asked for
    - ``ToolLoopExceeded``: a loop of tool calls reached its bound
    - ``RequestFailedError``: the daemon ended the request with an error
        - ``QueueFull``, ``BackendUnavailable``: the same request may succeed later
        - ``ContextOverflow`` and others: it will not
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, UnsetType

from inferd.client.frames import ClientErrorFrame
from inferd.errors import ErrorCode
from inferd.wire.blocks import Message

MS_PER_S: Final = 1000
TRUST_VARIABLE: Final = "INFERD_TRUST_UID"
"""The environment variable with additional trusted uids, separated by commas."""


class ClientError(Exception):
    """A request could not be sent, or was not answered completely."""


class RequestFailedError(ClientError):
    """The daemon ended the request with an error frame.

    Attributes:
        frame: the error frame, with ``code``, ``message`` and their details.
    """

    def __init__(self, frame: ClientErrorFrame) -> None:
        self.frame = frame
        named = f"{frame.code.replace('_', ' ')}: "  # "invalid request: "
        is_named = frame.message.startswith(named)
        super().__init__(
            frame.message if is_named else f"{frame.code}: {frame.message}"
        )

    @property
    def code(self) -> str:
        """The kind of failure: one of ``ErrorCode``, or a later daemon's."""
        return self.frame.code


class ConnectionLostError(ClientError):
    """The connection ended before the terminal frame."""


class UnreadError(ConnectionLostError):
    """It ended before the daemon had read all that was sent, and without an answer.

    A request behind which nothing was sent has not been computed.
    """


class ProtocolError(ClientError):
    """The daemon sent a frame that this protocol does not allow."""


class UntrustedServerError(ClientError):
    """The user behind a socket or its directory is not trusted; nothing was sent.

    Attributes:
        path: of the socket.
        uid: of the listening process, or of the owner of the directory or symlink.
    """

    def __init__(self, path: Path, uid: int, reason: str, hint: str = "") -> None:
        self.path = path
        self.uid = uid
        hint = hint or f"To trust this uid, set {TRUST_VARIABLE}={uid}"
        super().__init__(f"{path}: {reason}; nothing was sent. {hint}")


class NoDaemonError(ClientError):
    """No daemon accepts connections at any of the possible paths.

    Attributes:
        tried: the error at each path.
    """

    def __init__(
        self,
        text: str,
        tried: Mapping[Path, OSError | UntrustedServerError] = MappingProxyType({}),
    ) -> None:
        self.tried = tried
        super().__init__(text)


def _seconds(ms: int | UnsetType) -> float | None:
    return None if ms is UNSET else ms / MS_PER_S


class QueueFull(RequestFailedError):
    """The daemon's queue, its connections or its descriptors are at a limit; ask later."""

    @property
    def retry_after(self) -> float | None:
        """Seconds until a request may be accepted; ``None`` if that cannot be estimated."""
        return _seconds(self.frame.retry_after_ms)

    @property
    def queue_depth(self) -> int | None:
        """Requests that wait; ``None`` if it is not the queue that is full."""
        return None if self.frame.queue_depth is UNSET else self.frame.queue_depth


class BackendUnavailable(RequestFailedError):
    """No backend can serve the request now, or the one that served it died; ask later."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a remote engine may serve it; ``None`` if it did not say."""
        return _seconds(self.frame.retry_after_ms)


class InvalidRequest(RequestFailedError):
    """The request cannot be executed; its text says which field is at fault."""


class ContextOverflow(InvalidRequest):
    """The prompt does not fit the context: shorten it by ``tokens_over`` tokens."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt; at least these, if ``at_least``."""
        return self.frame.prompt_tokens or 0

    @property
    def n_ctx(self) -> int:
        """Tokens that one request may take, prompt and answer together."""
        return self.frame.n_ctx or 0

    @property
    def tokens_over(self) -> int:
        """Tokens to remove; at least these, if ``at_least``."""
        return self.frame.tokens_over or 0

    @property
    def at_least(self) -> bool:
        """Whether the prompt was too long to be counted to its end."""
        return self.frame.at_least is True


class RequestTooLarge(RequestFailedError):
    """The request, or its media, have more bytes than one request may have."""


class ModelNotFound(RequestFailedError):
    """No model of that name can do what is asked: name one of ``models``."""

    @property
    def models(self) -> Sequence[str]:
        """Names of models that can do it, 32 at most."""
        return self.frame.models or []


class EmbeddingUnsupported(RequestFailedError):
    """The model computes no embeddings: name another one, or configure one."""


class RerankingUnsupported(RequestFailedError):
    """The model does not rank documents: name another one, or configure one."""


class AttachmentUnsupported(RequestFailedError):
    """No model takes this kind of media."""


class DeadlineExceeded(RequestFailedError):
    """No answer began within ``deadline_ms``."""


class RequestCancelled(RequestFailedError):
    """The request was cancelled before its answer began."""


class PermissionDenied(RequestFailedError):
    """This user, or this token, may not do that."""


class DaemonFault(RequestFailedError):
    """A bug of the daemon; its text has the number under which it was logged."""


class RequestTimeout(ClientError, TimeoutError):
    """Nothing came for as long as the client waits; the request was cancelled."""


class AnswerNotOfType(ClientError):
    """An answer is not of the type that was asked for.

    Where ``is_cut`` it was cut short, as by ``max_tokens``: ask for more tokens.

    Attributes:
        text: of the answer.
        is_cut: whether the answer ended before its structure was complete.
    """

    def __init__(self, text: str, reason: str, *, is_cut: bool) -> None:
        self.text = text
        self.is_cut = is_cut
        super().__init__(reason)


class ToolLoopExceeded(ClientError):
    """``run_tools`` reached its bound of turns or of time.

    Attributes:
        messages: the conversation so far, to go on with.
    """

    def __init__(self, reason: str, messages: Sequence[Message]) -> None:
        self.messages = messages
        super().__init__(reason)


BY_CODE: Final[Mapping[str, type[RequestFailedError]]] = MappingProxyType(
    {
        ErrorCode.QUEUE_FULL: QueueFull,
        ErrorCode.BACKEND_UNAVAILABLE: BackendUnavailable,
        ErrorCode.INVALID_REQUEST: InvalidRequest,
        ErrorCode.FRAME_TOO_LARGE: RequestTooLarge,
        ErrorCode.INTERNAL: DaemonFault,
        ErrorCode.EMBED_UNSUPPORTED: EmbeddingUnsupported,
        ErrorCode.RERANK_UNSUPPORTED: RerankingUnsupported,
        ErrorCode.ATTACHMENT_UNSUPPORTED: AttachmentUnsupported,
        ErrorCode.DEADLINE_EXCEEDED: DeadlineExceeded,
        ErrorCode.CANCELLED: RequestCancelled,
        ErrorCode.PERMISSION_DENIED: PermissionDenied,
        ErrorCode.MODEL_NOT_FOUND: ModelNotFound,
    }
)
"""The class for each code; one that only a later daemon knows is ``RequestFailedError``."""


def failure_of(frame: ClientErrorFrame) -> RequestFailedError:
    """Make the exception for an error frame."""
    if frame.tokens_over is not UNSET:
        return ContextOverflow(frame)
    return BY_CODE.get(frame.code, RequestFailedError)(frame)
