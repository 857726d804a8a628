"""The Python client: ``Client`` for threads, ``AsyncClient`` for tasks of trio and asyncio.

Both run the plans of ``core``, which does no I/O, over ``connection``. Below them,
``sync.FrameClient`` and ``asynchronous.AsyncFrameClient`` send requests and give frames as they
are. Nothing here needs a native package, except to decode image and audio files:
``attachments`` does that with the packages of ``inferd[media]``.

The names of the library are imported when they are first asked for: programs that use one
module of this package import no other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inferd.client.core.answer import (
        FinalAnswer,
        ProgressEvent,
        TextEvent,
        ThinkingEvent,
        ToolCallEvent,
    )
    from inferd.client.core.conversation import AnyMessage
    from inferd.client.core.failures import (
        AnswerNotOfType,
        AttachmentUnsupported,
        BackendUnavailable,
        ClientError,
        ConnectionLostError,
        ContextOverflow,
        DaemonFault,
        DeadlineExceeded,
        EmbeddingUnsupported,
        InvalidRequest,
        ModelNotFound,
        NoDaemonError,
        PermissionDenied,
        ProtocolError,
        QueueFull,
        RequestCancelled,
        RequestFailedError,
        RequestTimeout,
        RequestTooLarge,
        RerankingUnsupported,
        ToolLoopExceeded,
        UntrustedServerError,
    )
    from inferd.client.core.tools import ToolError, tool
    from inferd.client.library.blocking import Client
    from inferd.client.library.concurrent import AsyncClient

_ANSWERS: Final = "inferd.client.core.answer"
_FAILURES: Final = "inferd.client.core.failures"
_TOOLS: Final = "inferd.client.core.tools"
_PLACES: Final = {
    "AnyMessage": "inferd.client.core.conversation",
    "AsyncClient": "inferd.client.library.concurrent",
    "Client": "inferd.client.library.blocking",
    **dict.fromkeys(
        (
            *("FinalAnswer", "ProgressEvent", "TextEvent", "ThinkingEvent"),
            "ToolCallEvent",
        ),
        _ANSWERS,
    ),
    **dict.fromkeys(
        (
            *("AnswerNotOfType", "AttachmentUnsupported", "BackendUnavailable"),
            *("ClientError", "ConnectionLostError", "ContextOverflow", "DaemonFault"),
            *("DeadlineExceeded", "EmbeddingUnsupported", "InvalidRequest"),
            *("ModelNotFound", "NoDaemonError", "PermissionDenied", "ProtocolError"),
            *("QueueFull", "RequestCancelled", "RequestFailedError", "RequestTimeout"),
            *("RequestTooLarge", "RerankingUnsupported", "ToolLoopExceeded"),
            "UntrustedServerError",
        ),
        _FAILURES,
    ),
    **dict.fromkeys(("ToolError", "tool"), _TOOLS),
}

__all__ = [
    "AnswerNotOfType",
    "AnyMessage",
    "AsyncClient",
    "AttachmentUnsupported",
    "BackendUnavailable",
    "Client",
    "ClientError",
    "ConnectionLostError",
    "ContextOverflow",
    "DaemonFault",
    "DeadlineExceeded",
    "EmbeddingUnsupported",
    "FinalAnswer",
    "InvalidRequest",
    "ModelNotFound",
    "NoDaemonError",
    "PermissionDenied",
    "ProgressEvent",
    "ProtocolError",
    "QueueFull",
    "RequestCancelled",
    "RequestFailedError",
    "RequestTimeout",
    "RequestTooLarge",
    "RerankingUnsupported",
    "TextEvent",
    "ThinkingEvent",
    "ToolCallEvent",
    "ToolError",
    "ToolLoopExceeded",
    "UntrustedServerError",
    "tool",
]


def __getattr__(name: str) -> object:
    """Import a name of the library."""
    if (place := _PLACES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(place), name)
