"""What failed, in the client's own words, and what can be done."""

from inferd.cli.connect import hint_for
from inferd.cli.unreachable import connection_hint
from inferd.client.core.failures import (
    AttachmentUnsupported,
    ClientError,
    ContextOverflow,
    ModelNotFound,
    NoDaemonError,
    QueueFull,
    RequestFailedError,
    UntrustedServerError,
)

_AGAIN = "/regenerate asks again"


def advice_for(error: Exception) -> str:
    """Return what can be done about a failure; empty if its text says it."""
    if isinstance(error, UntrustedServerError) or not isinstance(error, ClientError):
        return ""
    if isinstance(error, RequestFailedError):
        return _advice_of_daemon(error)
    if isinstance(error, NoDaemonError):
        return f"{connection_hint(error)}; then /regenerate"
    return _AGAIN


def _advice_of_daemon(error: RequestFailedError) -> str:
    match error:
        case QueueFull(retry_after=float(seconds)):
            return f"{_AGAIN}, best in {max(seconds, 1):.0f} s"
        case ContextOverflow():
            return "/context chooses what is left out; /new begins an empty chat"
        case ModelNotFound(models=[first, *_]):
            return f"/model {first}"
        case AttachmentUnsupported():
            return "/model lists what each model takes"
        case _:
            return hint_for(error) or _AGAIN
