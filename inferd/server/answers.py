"""Events to frames: an answer in the words of v1, and in those of v2."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from inferd.events import (
    AudioRead,
    Done,
    DoneV2,
    MalformedToolCall,
    Partial,
    Progress,
    Queued,
    Span,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
)
from inferd.job import GenerateJob
from inferd.output.blocks import merge
from inferd.resolve.plan import Plan
from inferd.server.activity import Activity
from inferd.wire.responses import (
    AnswerWarning,
    BlockFrame,
    BlocksDone,
    DoneFrame,
    Guesses,
    ProgressFrame,
    Response,
    TextDelta,
    ThinkingDelta,
    TokenFrame,
    ToolCall,
    Usage,
    UsageV2,
)
from inferd.wire.speech import TranscriptionFacts

E = TypeVar("E", TokenEvent, TokenEventV2)
Detail = Literal["deadline"]


class Answer(ABC, Generic[E]):
    """The frames of one answer."""

    def __init__(self, plan: Plan[GenerateJob], activity: Activity) -> None:
        self._id = activity.request_id
        self._streams = plan.streams
        self._seed = plan.job.sampling.seed
        self._tells_structure = plan.job.tells_structure
        self._activity = activity
        self.has_begun = False
        """Whether a frame of the answer itself went out."""
        self.stop_reason: str | None = None
        """Why it ended, once it has."""

    @abstractmethod
    def frames_of(self, events: Sequence[E]) -> Sequence[Response]:
        """Give the frames that events are worth now."""

    @abstractmethod
    def cancelled(self, detail: Detail | UnsetType) -> Sequence[Response]:
        """Give the last frames of an answer that is cut short."""

    def _progress(self, event: Progress | Queued) -> ProgressFrame:
        match event:
            case Queued(position):
                return ProgressFrame(id=self._id, status="queued", position=position)
            case Progress(processed, total):
                return ProgressFrame(
                    id=self._id, status="prefill", processed=processed, total=total
                )


class TextAnswer(Answer[TokenEvent]):
    """v1: token frames, then one done frame with all of the text."""

    def __init__(self, plan: Plan[GenerateJob], activity: Activity) -> None:
        super().__init__(plan, activity)
        self._texts: list[str] = []

    def frames_of(self, events: Sequence[TokenEvent]) -> Sequence[Response]:
        """Give the frames that events are worth now."""
        frames: list[Response] = []
        for event in events:
            match event:
                case Token(text):
                    self._texts.append(text)
                    if self._streams:
                        self.has_begun = True
                        frames.append(TokenFrame(id=self._id, content=text))
                case Progress() | Queued():
                    frames.append(self._progress(event))
                case Done():
                    frames.append(self._done(event))
        return frames

    def cancelled(
        self,
        detail: Detail | UnsetType,  # noqa: ARG002  # no deadlines in v1
    ) -> Sequence[Response]:
        """Give the last frame, with the text so far."""
        output = self._activity.output
        usage = Usage(
            self._activity.input_tokens, output.n_tokens, output.reuse.cached_tokens
        )
        complete = False if self._tells_structure else None
        done = Done(stop_reason="cancelled", usage=usage, structure_complete=complete)
        return [self._done(done)]

    def _done(self, event: Done) -> DoneFrame:
        self.stop_reason = event.stop_reason
        return DoneFrame(
            id=self._id,
            content="".join(self._texts),
            usage=_with_guesses(event.usage, self._activity.output.guesses),
            stop_reason=event.stop_reason,
            backend=self._activity.backend or "",
            seed=self._seed,
            timing=self._activity.timing(event.usage.completion_tokens),
            structure_complete=_or_unset(event.structure_complete),
            cache_miss=self._activity.output.reuse.miss or UNSET,
        )


Block = Text | Thinking | ToolUse


class BlocksAnswer(Answer[TokenEventV2]):
    """v2: frames with a block each, then one done frame without any text."""

    def __init__(self, plan: Plan[GenerateJob], activity: Activity) -> None:
        super().__init__(plan, activity)
        self._held: list[Block] = []

    def frames_of(self, events: Sequence[TokenEventV2]) -> Sequence[Response]:
        """Give the frames that events are worth now."""
        frames: list[Response] = []
        for event in events:
            match event:
                case Progress() | Queued() | Partial() | AudioRead():
                    frames += self._on_the_way(event)
                case DoneV2():
                    frames += self._blocks(merge(self._held))
                    frames.append(self._done(event))
                case Text() | Thinking() | ToolUse():
                    if self._streams:
                        frames += self._blocks([event])
                    else:
                        self._held.append(event)
        return frames

    def cancelled(self, detail: Detail | UnsetType) -> Sequence[Response]:
        """Give what was held back, and the last frame."""
        output = self._activity.output
        usage = UsageV2(
            self._activity.input_tokens, output.n_tokens, output.reuse.cached_tokens
        )
        done = DoneV2(
            stop_reason="cancelled",
            usage=usage,
            structure_complete=False if self._tells_structure else None,
            warnings=tuple(self._activity.output.warnings),
        )
        return [*self._blocks(merge(self._held)), self._done(done, detail)]

    def _on_the_way(
        self, event: Progress | Queued | Partial | AudioRead
    ) -> Sequence[ProgressFrame]:
        match event:
            case Progress() | Queued():
                return [self._progress(event)]
            case Partial(text, span) if self._streams:
                partial = ProgressFrame(
                    id=self._id,
                    status="partial",
                    text=text,
                    start_ms=span.start_ms,
                    end_ms=span.end_ms,
                )
                return [partial]
            case Partial():
                return []
            case AudioRead(n_bytes):
                self._activity.on_heard(n_bytes)
                return []

    def _blocks(self, blocks: Iterable[Block]) -> list[BlockFrame]:
        frames = [
            BlockFrame(
                id=self._id,
                block=_block(block),
                logprobs=list(block.logprobs)
                if isinstance(block, Text) and block.logprobs
                else UNSET,
            )
            for block in blocks
        ]
        self.has_begun |= bool(frames)
        return frames

    def _done(self, event: DoneV2, detail: Detail | UnsetType = UNSET) -> BlocksDone:
        self.stop_reason = event.stop_reason
        return BlocksDone(
            id=self._id,
            usage=_with_guesses(event.usage, self._activity.output.guesses),
            stop_reason=event.stop_reason,
            backend=self._activity.backend or "",
            seed=self._seed if self._activity.has_seed else UNSET,
            timing=self._activity.timing(event.usage.output_tokens),
            stop_sequence=_or_unset(event.stop_sequence),
            stop_token_id=_or_unset(event.stop_token_id),
            detail=detail,
            structure_complete=_or_unset(event.structure_complete),
            warnings=_warnings(event.warnings),
            cache_miss=self._activity.output.reuse.miss or UNSET,
            transcription=self._transcription(event),
        )

    def _transcription(self, event: DoneV2) -> TranscriptionFacts | UnsetType:
        if (heard := event.transcription) is None:
            return UNSET
        self._activity.heard(heard, event.usage.input_tokens)
        return TranscriptionFacts(
            language=heard.language,
            language_probability=_or_unset(heard.language_probability),
            audio_ms=heard.audio_ms,
            real_time_factor=heard.real_time_factor,
            latency_ms=_or_unset(self._activity.latency_ms()),
        )


def _block(block: Block) -> TextDelta | ThinkingDelta | ToolCall:
    match block:
        case Text(delta, span=Span() as span):
            return TextDelta(
                delta, span.start_ms, span.end_ms, _or_unset(span.no_speech)
            )
        case Text(delta):
            return TextDelta(delta)
        case Thinking(delta):
            return ThinkingDelta(delta)
        case ToolUse(tool_call_id=call_id, name=name, input=value):
            return ToolCall(call_id, name, value)


U = TypeVar("U", Usage, UsageV2)


def _with_guesses(usage: U, guesses: Guesses) -> U:
    if not guesses.drafted_tokens:
        return usage
    return replace(
        usage,
        drafted_tokens=guesses.drafted_tokens,
        accepted_tokens=guesses.accepted_tokens,
    )


V = TypeVar("V", str, int, bool, float)


def _or_unset(value: V | None) -> V | UnsetType:
    return UNSET if value is None else value


def _warnings(
    malformed: Sequence[MalformedToolCall],
) -> list[AnswerWarning] | UnsetType:
    if not malformed:
        return UNSET
    return [
        AnswerWarning(code="tool_call_malformed", raw=each.raw) for each in malformed
    ]
