"""The end of an answer, and the failure of a context that is full."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from inferd.client.core.failures import ClientError


class ResponseCode(IntEnum):
    """How an answer has ended."""

    SUCCESS = 0
    ERROR = 1
    CONTEXT_FULL = 2
    MAX_TOKENS_TOO_HIGH = 3


@dataclass(frozen=True)
class SessionToolCall:
    """A call of a tool that the model asks for."""

    id: str
    name: str
    arguments: str
    """JSON."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """The end of an answer."""

    code: ResponseCode = ResponseCode.SUCCESS
    content: str = ""
    """The text, or what has come of it."""
    error: str = ""
    finish_reason: str = ""
    """``stop``, ``length``, ``tool_calls``, ``cancelled`` or ``error``."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tool_calls: Sequence[SessionToolCall] = ()
    tool_calls_json: str = ""
    """The same in OpenAI's form; empty without any."""
    was_streamed: bool = True

    @property
    def success(self) -> bool:
        """Whether the code is ``SUCCESS``."""
        return self.code is ResponseCode.SUCCESS


class ContextFullError(ClientError):
    """A conversation does not fit the context: take messages out, and ask again.

    Attributes:
        tokens_over: tokens to take out; at least these, if ``at_least``.
        at_least: whether the prompt was too long to be counted to its end.
        evict: ranges of messages of the session that could go, oldest first, for
            ``Session.evict_messages``; empty if that would not be enough.
        response: the end of the answer, with ``CONTEXT_FULL``.
    """

    def __init__(
        self,
        text: str,
        *,
        tokens_over: int,
        at_least: bool = False,
        evict: Sequence[range] = (),
    ) -> None:
        self.tokens_over = tokens_over
        self.at_least = at_least
        self.evict = evict
        self.response = Response(
            code=ResponseCode.CONTEXT_FULL, error=text, finish_reason="error"
        )
        super().__init__(text)
