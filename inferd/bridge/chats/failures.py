"""Failures about chats, as the bridge tells them; pure."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.chats.failures import ChatError, ChatFault
from inferd.limits.bridge import BUSY_S

_REASONS: Final[Mapping[ChatFault, Reason]] = {
    ChatFault.NO_CHAT: Reason.CHAT_NOT_FOUND,
    ChatFault.NO_MESSAGE: Reason.MESSAGE_NOT_FOUND,
    ChatFault.NO_ATTACHMENT: Reason.ATTACHMENT_NOT_FOUND,
    ChatFault.CONFLICT: Reason.CHAT_CONFLICT,
    ChatFault.INVALID: Reason.INVALID_REQUEST,
    ChatFault.LIMIT: Reason.CHAT_LIMIT,
    ChatFault.LOCKED: Reason.CHATS_UNAVAILABLE,
    ChatFault.FULL: Reason.CHATS_UNAVAILABLE,
    ChatFault.GONE: Reason.CHATS_UNAVAILABLE,
    ChatFault.OLDER: Reason.CHATS_UNAVAILABLE,
    ChatFault.NEWER: Reason.CHATS_UNAVAILABLE,
}


class ChatFailureDetail(Struct, frozen=True):
    """What a failure says."""

    code: str
    message: str
    param: str | None
    """The field of the request that is at fault, if one is."""


class ChatFailure(Struct, frozen=True):
    """The body of a failure."""

    detail: str
    error: ChatFailureDetail


def chat_failure_body(failure: BridgeError) -> bytes:
    """Return the body of a failure."""
    detail = ChatFailureDetail(failure.reason.value, str(failure), failure.param)
    return msgspec.json.encode(ChatFailure(str(failure), detail))


@contextmanager
def telling_chat_failures() -> Iterator[None]:
    """Turn failures of the store into failures of the bridge.

    Raises:
        BridgeError: the block raised a failure of chats.
    """
    try:
        yield
    except ChatError as error:
        reason = _REASONS[error.fault]
        retry_s = BUSY_S if error.fault is ChatFault.LOCKED else None
        raise BridgeError(
            reason, str(error), param=error.param, retry_after_s=retry_s
        ) from error
