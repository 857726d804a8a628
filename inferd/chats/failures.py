"""Why something cannot be stored or found; pure."""

from enum import StrEnum


class ChatFault(StrEnum):
    """The kind of a failure."""

    NO_CHAT = "no_chat"
    NO_MESSAGE = "no_message"
    NO_ATTACHMENT = "no_attachment"
    CONFLICT = "conflict"
    INVALID = "invalid"
    LIMIT = "limit"
    LOCKED = "locked"
    FULL = "full"
    GONE = "gone"
    OLDER = "older"
    NEWER = "newer"


class ChatError(Exception):
    """Something about chats that failed; its text is meant for the caller.

    Args:
        fault: the kind.
        text: a sentence for people.
        param: the field of the request that is at fault, if one is.
    """

    def __init__(self, fault: ChatFault, text: str, param: str | None = None) -> None:
        self.fault = fault
        self.param = param
        super().__init__(text)


def no_chat() -> ChatError:
    """Return the failure of who asks for a chat that is not there, or not theirs."""
    return ChatError(ChatFault.NO_CHAT, "there is no such chat")


def no_message() -> ChatError:
    """Return the failure of who asks for a message that is not in the chat."""
    return ChatError(ChatFault.NO_MESSAGE, "there is no such message in this chat")
