"""A conversation whose answers are told as events."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Unpack, cast

import msgspec

from inferd.client.core.answer import FinalAnswer
from inferd.client.core.conversation import ChatOptions
from inferd.client.core.failures import (
    ClientError,
    ContextOverflow,
    RequestFailedError,
)
from inferd.client.events.callback import (
    FINISH_REASONS,
    CallbackEvent,
    EventCallback,
    EventReader,
    Told,
    stats_of,
    told,
)
from inferd.client.events.response import (
    ContextFullError,
    Response,
    ResponseCode,
    SessionToolCall,
)
from inferd.client.library.blocking import Client
from inferd.wire.blocks import Message, TextBlock, ToolResultBlock, ToolUseBlock

_CANCELLED: Final = "cancelled"


@dataclass
class SessionMessage:
    """A message of a session."""

    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str
    tool_name: str = ""
    """Of a tool's result."""
    tool_id: str = ""
    """The id of the call that it is the result of."""
    tool_calls: Sequence[SessionToolCall] = ()
    """Of an assistant's."""
    tokens: int | None = None
    """Of the message alone, once they were counted."""

    def as_message(self) -> Message:
        """Return the message as the protocol has it.

        Raises:
            ClientError: there is no such role.
        """
        text = TextBlock(self.content)
        match self.role:
            case "tool":
                return Message("user", [ToolResultBlock(self.tool_id, [text])])
            case "assistant":
                calls = [
                    ToolUseBlock(each.id, each.name, msgspec.Raw(each.arguments))
                    for each in self.tool_calls
                ]
                texts = [text] if self.content or not calls else []
                return Message("assistant", [*texts, *calls])
            case "system" | "user":
                return Message(self.role, [text])
            case _:
                raise ClientError(f"there is no role {self.role!r}")


class LimitTooHighError(ClientError):
    """An answer was asked for that is longer than the context."""


@dataclass
class _Answer:
    """What has come of an answer."""

    final: FinalAnswer | None = None
    is_cancelled: bool = False
    failure: ClientError | None = None
    text: str = ""
    calls: list[SessionToolCall] = field(default_factory=list)


class Session:
    """A conversation with a daemon or through a bridge, told to one callback.

    Nothing is ever taken out of it but by ``evict_messages``.

    Args:
        client: asks; it stays the caller's.
        callback: is told each event, in the thread that calls; ``False`` cancels the
            answer, after which ``STOP`` alone is told.
        shows_thinking: whether ``THINKING`` is told.
        options: of each request, as ``Client.chat`` takes them.

    Bounds: as many messages as the caller adds.

    Ownership: one thread uses it.
    """

    def __init__(
        self,
        client: Client,
        callback: EventCallback,
        *,
        shows_thinking: bool = False,
        **options: Unpack[ChatOptions],
    ) -> None:
        self._client = client
        self._callback = callback
        self._shows_thinking = shows_thinking
        self._options = options
        self._n_ctx: int | None = None
        """Tokens of the model's context; 0 if it does not tell."""
        self.messages: list[SessionMessage] = []
        """The conversation, oldest first."""

    # --- answers --------------------------------------------------------------------------

    def add_message(  # a message, and the bound of its answer
        self,
        role: str,
        content: str,
        tool_name: str = "",
        tool_id: str = "",
        *,
        max_tokens: int = 0,
    ) -> Response:
        """Add a message and have the conversation answered.

        Args:
            role: ``user`` or ``tool``, or another, as for ``append``.
            content: its text.
            tool_name: of a tool's result.
            tool_id: the id of the call that it is the result of.
            max_tokens: longest answer; 0 for that of the session.

        Raises:
            ContextFullError: the conversation does not fit; the message stays in it.
        """
        self.append(role, content, tool_name, tool_id)
        return self.generate(max_tokens)

    def append(
        self, role: str, content: str, tool_name: str = "", tool_id: str = ""
    ) -> None:
        """Add a message without an answer; a user's and a tool's are told to the callback."""
        self.messages.append(SessionMessage(role, content, tool_name, tool_id))
        if role == "user":
            self._callback(*told(CallbackEvent.USER_PROMPT, content))
        if role == "tool":
            event = told(CallbackEvent.TOOL_RESULT, content, tool_name, tool_id)
            self._callback(*event)

    def prefill(self) -> int:
        """Have the prompt processed, so that it is in the daemon's cache; generate nothing.

        Returns:
            Its tokens.

        Raises:
            ContextFullError: the conversation does not fit.
            ClientError: it failed otherwise; nothing is told to the callback.
        """
        asked: ChatOptions = {**self._options, "prefill_only": True}
        try:
            answer = self._client.chat(self._prompt(), **asked)
        except ContextOverflow as error:
            raise self._full(error) from error
        return answer.usage.input_tokens

    def generate(self, max_tokens: int = 0) -> Response:
        """Have the conversation answered, and add the answer to it.

        What ``prefill`` has processed is not processed again.

        Args:
            max_tokens: longest answer; 0 for that of the session.

        Raises:
            ContextFullError: the conversation does not fit.
        """
        asked = cast("ChatOptions", {**self._options})
        answer = _Answer()
        try:
            if limit := max_tokens or self._options.get("max_tokens", 0):
                asked["max_tokens"] = limit
                self._check_limit(limit)
            self._stream(asked, answer)
        except ContextOverflow as error:
            raise self._full(error) from error
        except ClientError as error:
            answer.failure = error
        return self._ended(answer)

    def _check_limit(self, max_tokens: int) -> None:
        """Refuse an answer that is longer than the model's context, where that is known.

        Raises:
            LimitTooHighError: it is.
        """
        if self._n_ctx is None:
            name = self._options.get("model")
            able = [each for each in self._client.models() if "generate" in each.can]
            asked = [each for each in able if name in {None, each.name, *each.aliases}]
            self._n_ctx = (asked[0].n_ctx if asked else None) or 0
        if self._n_ctx and max_tokens >= self._n_ctx:
            raise LimitTooHighError(
                f"max_tokens {max_tokens}, but the context has {self._n_ctx} tokens"
            )

    def _stream(self, asked: ChatOptions, answer: _Answer) -> None:
        """Have the conversation answered; tell the callback until it cancels.

        Raises:
            ClientError: the answer failed.
        """
        reader = EventReader(shows_thinking=self._shows_thinking)
        with self._client.stream(self._prompt(), **asked) as stream:
            try:
                for event in stream.events():
                    if not self._tell(reader.read(event), answer):
                        return
                final = stream.final()
            finally:
                answer.text = stream.text
            answer.final = final
            if not self._tell(reader.end(), answer):
                return
            stats = told(CallbackEvent.STATS, stats_of(final))
            self._tell([stats], answer)

    def _tell(self, events: Iterable[Told], answer: _Answer) -> bool:
        """Call back; tell whether to go on."""
        for event, content, name, call_id in events:
            if event is CallbackEvent.TOOL_CALL:
                answer.calls.append(SessionToolCall(call_id, name, content))
            if not self._callback(event, content, name, call_id):
                answer.is_cancelled = True
                return False
        return True

    def _ended(self, answer: _Answer) -> Response:
        """Tell the end of an answer, and add what has come to the conversation."""
        final = answer.final
        if answer.text or answer.calls:
            said = SessionMessage("assistant", answer.text, tool_calls=answer.calls)
            said.tokens = final.usage.output_tokens if final is not None else None
            self.messages.append(said)
        response = _response(answer)
        if answer.failure is not None:
            kind = kind_of(answer.failure)
            self._callback(*told(CallbackEvent.ERROR, response.error, kind))
        self._callback(*told(CallbackEvent.STOP, response.finish_reason))
        return response

    # --- the context ----------------------------------------------------------------------

    def count_message_tokens(
        self, role: str, content: str, tool_name: str = "", tool_id: str = ""
    ) -> int:
        """Count the tokens of a message, as the model would read it alone.

        Args:
            role: as for ``append``.
            content: its text.
            tool_name: of a tool's result.
            tool_id: the id of the call that it is the result of.

        Raises:
            ClientError: it could not be counted.
        """
        return self._count(SessionMessage(role, content, tool_name, tool_id))

    def messages_to_evict(self, tokens_over: int) -> list[range]:
        """Return the oldest turns that have so many tokens; nothing is taken out.

        A turn begins with a user's message and has all up to the next one, so that calls and
        their results go together. System messages and the last turn stay.

        Returns:
            Ranges of ``messages``; none if those that may go have fewer tokens.

        Raises:
            ClientError: a message could not be counted.
        """
        ranges: list[range] = []
        n_found = 0
        for turn in self._turns():
            if n_found >= tokens_over:
                break
            ranges.append(turn)
            n_found += sum(self._count(self.messages[index]) for index in turn)
        return ranges if n_found >= tokens_over else []

    def evict_messages(self, ranges: Iterable[range]) -> None:
        """Take messages out of the conversation.

        Args:
            ranges: of ``messages``, as ``messages_to_evict`` and ``ContextFullError`` have
                them.
        """
        gone = {index for each in ranges for index in each}
        self.messages = [
            message for index, message in enumerate(self.messages) if index not in gone
        ]

    def _turns(self) -> Iterator[range]:
        """Give the turns that may go, oldest first."""
        users = [at for at, each in enumerate(self.messages) if each.role == "user"]
        for begin, end in pairwise(users):
            spoken = range(begin, end)
            if all(self.messages[index].role != "system" for index in spoken):
                yield spoken

    def _count(self, message: SessionMessage) -> int:
        if message.tokens is None:
            prompt = [message.as_message()]
            name = self._options.get("model")
            named: ChatOptions = {} if name is None else {"model": name}
            message.tokens = self._client.count_tokens(prompt, **named)
        return message.tokens

    def _full(self, error: ContextOverflow) -> ContextFullError:
        try:
            ranges = self.messages_to_evict(error.tokens_over)
        except ClientError:  # then the caller knows the number alone
            ranges = []
        return ContextFullError(
            str(error),
            tokens_over=error.tokens_over,
            at_least=error.at_least,
            evict=ranges,
        )

    def _prompt(self) -> list[Message]:
        return [each.as_message() for each in self.messages]


def kind_of(failure: ClientError) -> str:
    """Return the kind of a failure: the daemon's code, or the name of the exception."""
    return (
        failure.code
        if isinstance(failure, RequestFailedError)
        else type(failure).__name__
    )


def _response(answer: _Answer) -> Response:
    if answer.failure is not None:
        failure = answer.failure
        is_too_high = isinstance(failure, LimitTooHighError)
        return Response(
            code=ResponseCode.MAX_TOKENS_TOO_HIGH
            if is_too_high
            else ResponseCode.ERROR,
            content=answer.text,
            error=str(failure),
            finish_reason="error",
        )
    final = answer.final
    reason = _CANCELLED if answer.is_cancelled or final is None else final.stop_reason
    return Response(
        content=answer.text,
        finish_reason=FINISH_REASONS.get(reason, reason),
        prompt_tokens=final.usage.input_tokens if final is not None else 0,
        completion_tokens=final.usage.output_tokens if final is not None else 0,
        tool_calls=tuple(answer.calls),
        tool_calls_json=tool_calls_json(answer.calls),
    )


def tool_calls_json(calls: Sequence[SessionToolCall]) -> str:
    """Write calls as an array in OpenAI's form; empty for none."""
    if not calls:
        return ""
    listed = [
        {
            "id": each.id,
            "type": "function",
            "function": {"name": each.name, "arguments": each.arguments},
        }
        for each in calls
    ]
    return msgspec.json.encode(listed).decode()
