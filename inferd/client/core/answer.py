"""Events of an answer while it streams, and the whole answer, made of frames."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from inferd.client.core.failures import ProtocolError
from inferd.client.frames import BlocksAnswer, ClientAnswerWarning, ClientBlocksDone
from inferd.wire.blocks import Message, TextBlock, ToolUseBlock
from inferd.wire.responses import (
    BlockFrame,
    Logprob,
    ProgressFrame,
    TextDelta,
    ThinkingDelta,
    Timing,
    ToolCall,
    UsageV2,
)
from inferd.wire.speech import TranscriptionFacts

V = TypeVar("V")


def given(value: V | UnsetType) -> V | None:
    """Return a field of a frame, ``None`` where it is absent."""
    return None if isinstance(value, UnsetType) else value


class TextEvent(Struct, frozen=True, kw_only=True):
    """A part of the text of an answer."""

    text: str
    logprobs: Sequence[Logprob] | None = None
    """Of its tokens, if the request asks for them."""
    token_ids: Sequence[int] = ()
    """Of its tokens, if the request asks for them."""


class ThinkingEvent(Struct, frozen=True, kw_only=True):
    """A part of the reasoning."""

    text: str
    token_ids: Sequence[int] = ()
    """Of its tokens, if the request asks for them."""


class ToolCallEvent(Struct, frozen=True, kw_only=True):
    """A complete call of a tool."""

    id: str
    """Of the call, which its result names."""
    name: str
    """Of the tool."""
    arguments: object
    """JSON as Python objects; a dictionary, if the model keeps to the schema."""
    token_ids: Sequence[int] = ()
    """Of its tokens, if the request asks for them."""


class ProgressEvent(Struct, frozen=True, kw_only=True):
    """Where a request is that asked for ``progress``."""

    stage: str
    """``queued``, ``loading``, ``prefill`` or ``partial``."""
    position: int | None = None
    """With ``queued``: 1 for the next to run."""
    phase: str | None = None
    """With ``loading``: the step of loading the model."""
    processed: int | None = None
    """With ``prefill``: tokens of the prompt processed so far."""
    total: int | None = None
    """With ``prefill``: tokens of the prompt."""
    text: str | None = None
    """With ``partial``: transcribed text that may still change."""


Event = TextEvent | ThinkingEvent | ToolCallEvent | ProgressEvent


class FinalAnswer(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    text: str
    thinking: str
    """The reasoning; empty if there is none."""
    tool_calls: Sequence[ToolCallEvent]
    stop_reason: str
    """``end_turn``, ``max_tokens``, ``tool_use``, ``stop_sequence``, ``cancelled`` or
    ``error``, or one that a later daemon has."""
    usage: UsageV2
    """Tokens of the prompt and of the answer."""
    model: str
    """The configured name of the backend that answered."""
    seed: int | None = None
    """The sampler's."""
    timing: Timing | None = None
    """Milliseconds in the daemon."""
    stop_sequence: str | None = None
    """The string of ``stop`` that was found."""
    structure_complete: bool | None = None
    """With a structure or a forced call: whether it is closed."""
    logprobs: Sequence[Logprob] = ()
    """Of the tokens of the text, if the request asked for them."""
    token_ids: Sequence[int] = ()
    """Of all tokens of the answer, in order, if the request asked for them."""
    end_token_id: int | None = None
    """With ``token_ids``: the token that ended the answer, if one did."""
    stop_token_id: int | None = None
    """The token of ``stop_token_ids`` that was chosen."""
    warnings: Sequence[ClientAnswerWarning] = ()
    transcription: TranscriptionFacts | None = None

    @property
    def message(self) -> Message:
        """The answer as a message of the assistant, to go on with the conversation."""
        calls = [
            ToolUseBlock(each.id, each.name, Raw(msgspec.json.encode(each.arguments)))
            for each in self.tool_calls
        ]
        texts = [TextBlock(self.text)] if self.text or not calls else []
        return Message("assistant", [*texts, *calls])


@dataclass
class AnswerCollector:
    """Collects the frames of one answer.

    Bounds:
        It keeps what the daemon sent: an answer of at most ``max_tokens`` tokens.
    """

    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _calls: list[ToolCallEvent] = field(default_factory=list)
    _logprobs: list[Logprob] = field(default_factory=list)
    _token_ids: list[int] = field(default_factory=list)
    _done: ClientBlocksDone | None = None

    def read(self, frame: BlocksAnswer) -> Event | None:
        """Add a frame; return its event, ``None`` for the terminal frame."""
        match frame:
            case BlockFrame():
                return self._read_block(frame)
            case ProgressFrame():
                return _progress(frame)
            case ClientBlocksDone():
                self._done = frame
                self._token_ids += given(frame.token_ids) or ()
                return None

    def _read_block(self, frame: BlockFrame) -> Event:
        ids = given(frame.token_ids) or ()
        self._token_ids += ids
        match frame.block:
            case TextDelta(delta=text):
                logprobs = given(frame.logprobs)
                self._texts.append(text)
                self._logprobs += logprobs or ()
                return TextEvent(text=text, logprobs=logprobs, token_ids=ids)
            case ThinkingDelta(delta=text):
                self._thoughts.append(text)
                return ThinkingEvent(text=text, token_ids=ids)
            case ToolCall(tool_call_id=call_id, name=name, input=arguments):
                call = ToolCallEvent(
                    id=call_id, name=name, arguments=arguments, token_ids=ids
                )
                self._calls.append(call)
                return call

    @property
    def is_done(self) -> bool:
        """Whether the terminal frame has come."""
        return self._done is not None

    @property
    def text(self) -> str:
        """The text that has come so far."""
        return "".join(self._texts)

    def answer(self) -> FinalAnswer:
        """Return the whole answer.

        Raises:
            ProtocolError: its terminal frame has not come.
        """
        if (done := self._done) is None:
            raise ProtocolError("the answer has not ended")
        return FinalAnswer(
            text=self.text,
            thinking="".join(self._thoughts),
            tool_calls=tuple(self._calls),
            stop_reason=done.stop_reason,
            usage=done.usage,
            model=done.backend,
            seed=given(done.seed),
            timing=given(done.timing),
            stop_sequence=given(done.stop_sequence),
            structure_complete=given(done.structure_complete),
            logprobs=tuple(self._logprobs),
            token_ids=tuple(self._token_ids),
            end_token_id=given(done.end_token_id),
            stop_token_id=given(done.stop_token_id),
            warnings=() if done.warnings is UNSET else tuple(done.warnings),
            transcription=given(done.transcription),
        )


def _progress(frame: ProgressFrame) -> ProgressEvent:
    return ProgressEvent(
        stage=frame.status,
        position=given(frame.position),
        phase=given(frame.phase),
        processed=given(frame.processed),
        total=given(frame.total),
        text=given(frame.text),
    )
