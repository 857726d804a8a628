"""The question to the daemon that a conversation becomes, and how its frames add up; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.question import Question
from inferd.chats.file_types import kind_of_medium
from inferd.chats.prompt import FileBlock, messages_of, summary_messages
from inferd.chats.records import (
    AnswerUsage,
    CallState,
    KeptAttachment,
    KeptMessage,
    LeftOut,
    MessageDetails,
    StoredCall,
    WorkParameters,
    storable,
)
from inferd.limits.bridge import SUMMARY_TOKENS
from inferd.wire.blocks import Block, BlocksRequest, Tool
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, ToolCall

_NO_TOOLS: Final[Mapping[str, CallState]] = MappingProxyType({})


@dataclass(frozen=True)
class ToolOffer:
    """The tools that an answer may call."""

    tools: list[Tool] = field(default_factory=list)
    states: Mapping[str, CallState] = field(default_factory=lambda: _NO_TOOLS)
    """The state with which a call of each begins."""
    may_call: bool = True
    """Whether the model may call now, and does not have to answer."""


_NO_OFFER: Final = ToolOffer()


class PartialAnswer(GeneratedAnswer):
    """An answer as far as it has come.

    Args:
        before: the message as earlier rounds have left it.
        states: the state of a call of each tool that is carried out; others are only told.
    """

    def __init__(
        self,
        before: KeptMessage | None = None,
        states: Mapping[str, CallState] = _NO_TOOLS,
    ) -> None:
        super().__init__()
        self._text: list[str] = [before.text] if before else []
        self._thinking: list[str] = [before.thinking] if before else []
        details = before.details if before else MessageDetails()
        self._calls: list[StoredCall] = [*details.calls]
        self._round = 1 + max((call.round for call in self._calls), default=-1)
        self._usage_before = details.usage
        self._states = states

    def end(self) -> Iterator[bytes]:
        """Yield nothing: what it becomes is read from it."""
        yield from ()

    def whole(self) -> bytes:
        """Return the text."""
        return self.text.encode()

    @property
    def text(self) -> str:
        """The text so far."""
        self._text = ["".join(self._text)]
        return self._text[0]

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        match frame.block:
            case TextDelta(delta=text):
                self._text.append(storable(text))
            case ThinkingDelta(delta=text):
                self._thinking.append(storable(text))
            case ToolCall() as call:
                self._calls.append(
                    StoredCall(
                        self._own_id(call.tool_call_id),
                        call.name,
                        call.input,
                        at=len(self.text),
                        round=self._round,
                        state=self._states.get(call.name, "told"),
                    )
                )
        yield from ()

    def _own_id(self, given: str) -> str:
        """Return an id that no other call of the answer has, by which its user allows it.

        Those of the daemon are unique in one request alone, and a remote may give any.
        """
        known = {each.id for each in self._calls}
        while given in known:
            given = f"{given}-{len(known)}"
        return given

    def applied_to(self, message: KeptMessage) -> KeptMessage:
        """Return a message with the answer so far."""
        self._thinking = ["".join(self._thinking)]
        details = replace(
            message.details, calls=[*self._calls], finish_reason=self._reason or None
        )
        if self._done is not None:
            details = replace(details, usage=self._usage())
        return replace(
            message, text=self.text, thinking=self._thinking[0], details=details
        )

    def _usage(self) -> AnswerUsage:
        assert self._done is not None  # noqa: S101  # the caller has seen it
        usage, timing = self._done.usage, self._done.timing
        speed = None if timing is msgspec.UNSET else timing.tokens_per_second
        n_before = self._usage_before.output_tokens if self._usage_before else 0
        return AnswerUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens + n_before,
            cached_tokens=usage.cached_tokens,
            tokens_per_second=speed,
        )


def question_of(  # noqa: PLR0913  # what an answer depends on
    branch: Sequence[KeptMessage],
    work: WorkParameters,
    cut: LeftOut | None,
    files: Mapping[str, bytes],
    *,
    so_far: KeptMessage | None = None,
    offer: ToolOffer = _NO_OFFER,
    request_id: str,
    max_tokens: int,
    deadline_ms: int,
) -> tuple[Question, PartialAnswer]:
    """Return the question that a conversation asks, and the answer that its frames fill.

    Args:
        branch: the conversation, up to the prompt that is to be answered.
        work: what the answer is asked for with.
        cut: what the model is not shown of it.
        files: the bytes of its attachments, by their ids.
        so_far: the answer, whose calls have results.
        offer: the tools that it may call.
        request_id: names the request in the daemon.
        max_tokens: of an answer for which nobody has set a bound.
        deadline_ms: milliseconds for waiting and running.
    """
    sampling, media = work.sampling, MediaOfRequest()
    request = BlocksRequest(
        id=request_id,
        messages=messages_of(
            branch,
            work,
            cut,
            so_far=so_far,
            file_block=_file_block(files, media),
            as_calls=bool(offer.tools),
        ),
        tools=offer.tools,
        tool_choice="none" if offer.tools and not offer.may_call else None,
        model=work.model,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repeat_penalty=sampling.repetition_penalty,
        max_tokens=sampling.max_new_tokens or max_tokens,
        thinking=work.thinking,
        deadline_ms=deadline_ms,
    )
    answer = PartialAnswer(so_far, offer.states)
    return Question(request, answer, is_streamed=True, media=media.found), answer


def summary_question(
    turns: Sequence[KeptMessage],
    work: WorkParameters,
    earlier: str | None,
    *,
    request_id: str,
    deadline_ms: int,
) -> tuple[Question, PartialAnswer]:
    """Return the question for a summary of turns, and the answer that its frames fill."""
    request = BlocksRequest(
        id=request_id,
        messages=summary_messages(turns, earlier),
        model=work.model,
        temperature=0,
        max_tokens=SUMMARY_TOKENS,
        deadline_ms=deadline_ms,
    )
    answer = PartialAnswer()
    return Question(request, answer), answer


def _file_block(files: Mapping[str, bytes], media: MediaOfRequest) -> FileBlock:
    def block_of(attachment: KeptAttachment) -> Block | None:
        data = files.get(attachment.id)
        if data is None:
            return None
        is_picture = kind_of_medium(attachment.media_type) == "picture"
        add = media.picture if is_picture else media.sound
        return add(data, attachment.name)

    return block_of
