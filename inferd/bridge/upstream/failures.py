"""The daemon's refusals, as failures of the bridge; pure."""

import re
from collections.abc import Mapping
from typing import Final

from inferd.bridge.translation.failures import BridgeError, Reason, TokenOverflow
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
)
from inferd.client.frames import ClientErrorFrame
from inferd.client.peer_check import UntrustedServerError
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest, RerankRequest

_REASONS: Final[Mapping[str, Reason]] = {
    "queue_full": Reason.QUEUE_FULL,
    "backend_unavailable": Reason.UNAVAILABLE,
    "invalid_request": Reason.INVALID_REQUEST,
    "frame_too_large": Reason.TOO_LARGE,
    "embed_unsupported": Reason.UNSUPPORTED,
    "rerank_unsupported": Reason.UNSUPPORTED,
    "attachment_unsupported": Reason.UNSUPPORTED,
    "deadline_exceeded": Reason.DEADLINE,
    "cancelled": Reason.CANCELLED,
    "permission_denied": Reason.FORBIDDEN,
    "model_not_found": Reason.MODEL_NOT_FOUND,
}
_PREFIX: Final = "invalid request: "
_FIELD: Final = re.compile(r"[a-z_]+")
_FIELDS: Final = frozenset(
    (
        *BlocksRequest.__struct_fields__,
        *EmbedRequest.__struct_fields__,
        *RerankRequest.__struct_fields__,
    )
)
_SAME_NAMES: Final[Mapping[str, str]] = {}
_LACKING: Final[Mapping[str, str]] = {
    "reasoning traces": "thinking",
    "image attachments": "messages",
    "audio attachments": "messages",
    "answers to audio": "messages",
}
"""What the model that a request names may lack, in the daemon's words, and the field that asks
for it: that is at fault, and not the name."""
_NO_SUPPORT: Final = re.compile(rf" has no support for ({'|'.join(_LACKING)}); ")
_TEXT_OVERFLOW: Final = re.compile(r" has .*tokens.*, the context \d+\Z")
"""How the daemon refuses a text to embed or to rank that does not fit."""
NO_REASONING: Final = "has no support for reasoning traces"
"""How the daemon refuses to reason with the model that a request names."""
NOT_SERVED: Final = "is not served here"
"""How it refuses a name that no model has."""
NO_CONTEXT: Final = "has no support for a context of "
"""How it refuses a context that is longer than the model's."""
RETRY_UNAVAILABLE_S: Final = 1.0
"""Seconds after which a caller may ask again while no daemon or no backend answers, and none
has said when."""


def failure_of(error: Exception, names: Mapping[str, str] = _SAME_NAMES) -> BridgeError:
    """Return what a caller is told of an error of the client library.

    Paths and uids of this machine are left out.

    Args:
        error: of the client library.
        names: the API's names of fields that the daemon names in another way, and of those
            at fault for what a model lacks, in the daemon's words; ``model`` where a route asks
            for it of every model.
    """
    match error:
        case RequestFailedError(frame=frame):
            return refusal_of(frame, names)
        case NoDaemonError():
            text = "the daemon is not running, or does not serve this"
        case UntrustedServerError():
            text = "the daemon's socket belongs to a user who is not trusted"
        case ConnectionLostError():
            text = "the daemon ended the connection before the answer was complete"
        case ProtocolError():
            return BridgeError(Reason.INTERNAL, "the daemon's answer could not be read")
        case ClientError():
            return BridgeError(Reason.INVALID_REQUEST, str(error))
        case _:
            text = "the daemon cannot be reached"
    return BridgeError(Reason.UNAVAILABLE, text, retry_after_s=RETRY_UNAVAILABLE_S)


def refusal_of(
    frame: ClientErrorFrame, names: Mapping[str, str] = _SAME_NAMES
) -> BridgeError:
    """Return what a caller is told of an error frame; ``names`` as above."""
    reason = _REASONS.get(frame.code, Reason.INTERNAL)
    text = frame.message.removeprefix(_PREFIX)
    if isinstance(frame.prompt_tokens, int) and isinstance(frame.n_ctx, int):
        return _overflow(frame, names, frame.prompt_tokens, frame.n_ctx)
    if reason is Reason.MODEL_NOT_FOUND and (lacks := _NO_SUPPORT.search(text)):
        field = _LACKING[lacks[1]]
        asking = names.get(lacks[1], names.get(field, field))
        if asking != "model":
            return BridgeError(Reason.UNSUPPORTED, f"{asking}: {text}", param=asking)
    if reason is Reason.MODEL_NOT_FOUND and f" {NO_CONTEXT}" in text:
        asking = names.get("min_n_ctx", "min_n_ctx")
        return BridgeError(Reason.UNSUPPORTED, f"{asking}: {text}", param=asking)
    param = None
    if reason is Reason.INVALID_REQUEST and _TEXT_OVERFLOW.search(text):
        reason = Reason.CONTEXT_OVERFLOW
    if reason in {Reason.INVALID_REQUEST, Reason.CONTEXT_OVERFLOW}:
        param, text = _field_first(text, names)
    if reason is Reason.MODEL_NOT_FOUND:
        param = "model"
    return BridgeError(
        reason,
        text,
        param=param,
        retry_after_s=_retry_after_s(frame, reason),
        queue_depth=frame.queue_depth if isinstance(frame.queue_depth, int) else None,
    )


def _retry_after_s(frame: ClientErrorFrame, reason: Reason) -> float | None:
    """Return when a caller may ask again, if that is known."""
    if isinstance(frame.retry_after_ms, int):
        return frame.retry_after_ms / 1000
    return RETRY_UNAVAILABLE_S if reason is Reason.UNAVAILABLE else None


def _field_first(text: str, names: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the field that a text begins with, if it does, and the text, as the API has it."""
    found = _FIELD.match(text)
    if found is None or found[0] not in _FIELDS:
        return None, text
    field = names.get(found[0], found[0])
    return field, field + text.removeprefix(found[0])


def _overflow(
    frame: ClientErrorFrame, names: Mapping[str, str], n_tokens: int, n_ctx: int
) -> BridgeError:
    at_least = "at least " if frame.at_least is True else ""
    over = ""
    if frame.tokens_over:
        over = f"; {at_least}{frame.tokens_over} too many, counting one for the answer"
    return BridgeError(
        Reason.CONTEXT_OVERFLOW,
        f"This model's maximum context length is {n_ctx} tokens, and the prompt has "
        f"{at_least}{n_tokens}{over}",
        param=names.get("messages", "messages"),
        overflow=TokenOverflow(n_tokens, n_ctx, frame.tokens_over or 0),
    )
