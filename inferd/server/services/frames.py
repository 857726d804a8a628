"""Events to response frames, of v1 and of v2."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from inferd.backend.events import (
    AudioRead,
    Done,
    DoneV2,
    MalformedToolCall,
    Partial,
    PausedPosition,
    Progress,
    Span,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
)
from inferd.backend.job import GenerateJob
from inferd.ipc.worker import Loading
from inferd.output.parser import merge_deltas
from inferd.resolve.request import ResolvedRequest
from inferd.server.request_context import RequestContext
from inferd.wire.responses import (
    AnswerWarning,
    BlockFrame,
    BlocksDone,
    DoneFrame,
    DraftCounts,
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


class FrameBuilder(ABC, Generic[E]):
    """Builder of one answer's frames."""

    def __init__(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> None:
        self._id = context.request_id
        self._streams = plan.streams
        self._seed = plan.job.sampling.seed
        self._reports_structure = plan.job.tells_structure
        self._context = context
        self.has_begun = False
        """Whether a frame with content was built."""
        self.stop_reason: str | None = None
        """Why the answer ended, once it has."""

    @abstractmethod
    def build(self, events: Iterable[E]) -> Sequence[Response]:
        """Build the frames for events that can be sent now."""

    @abstractmethod
    def build_cancelled(self, detail: Detail | UnsetType) -> Sequence[Response]:
        """Build the last frames of a cancelled answer."""

    def _progress(self, event: Progress | PausedPosition) -> ProgressFrame:
        match event:
            case PausedPosition(position):
                return queued_frame(self._id, position)
            case Progress(processed, total):
                return ProgressFrame(
                    id=self._id, status="prefill", processed=processed, total=total
                )


def queued_frame(request_id: str, position: int) -> ProgressFrame:
    """Build the frame of a request's queue position, before it starts or while paused."""
    return ProgressFrame(id=request_id, status="queued", position=position)


def loading_frame(context: RequestContext, loading: Loading) -> ProgressFrame:
    """Build the frame of a request whose model is being loaded."""
    return ProgressFrame(
        id=context.request_id,
        status="loading",
        phase=loading.phase,
        backend=context.backend or UNSET,
    )


class V1FrameBuilder(FrameBuilder[TokenEvent]):
    """Builder of v1 frames: token frames, then one done frame with all of the text."""

    def __init__(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> None:
        super().__init__(plan, context)
        self._texts: list[str] = []

    def build(self, events: Iterable[TokenEvent]) -> Sequence[Response]:
        """Build the frames for events that can be sent now."""
        frames: list[Response] = []
        for event in events:
            match event:
                case Token(text):
                    self._texts.append(text)
                    if self._streams:
                        self.has_begun = True
                        frames.append(TokenFrame(id=self._id, content=text))
                case Progress() | PausedPosition():
                    frames.append(self._progress(event))
                case Done(usage=usage):
                    self._context.counted_tokens = (
                        usage.prompt_tokens + usage.completion_tokens
                    )
                    frames.append(self._done(event))
        return frames

    def build_cancelled(
        self,
        detail: Detail | UnsetType,  # noqa: ARG002  # no deadlines in v1
    ) -> Sequence[Response]:
        """Build the done frame, with the text so far."""
        output = self._context.output
        usage = Usage(
            self._context.input_tokens,
            output.n_tokens,
            output.reuse.cached_tokens,
            is_estimate=True if self._context.is_estimate else UNSET,
        )
        complete = False if self._reports_structure else None
        done = Done(stop_reason="cancelled", usage=usage, structure_complete=complete)
        return [self._done(done)]

    def _done(self, event: Done) -> DoneFrame:
        self.stop_reason = event.stop_reason
        return DoneFrame(
            id=self._id,
            content="".join(self._texts),
            usage=_with_draft_counts(event.usage, self._context.output.draft_counts),
            stop_reason=event.stop_reason,
            backend=self._context.backend or "",
            seed=self._seed,
            timing=self._context.timing(event.usage.completion_tokens),
            structure_complete=_or_unset(event.structure_complete),
            cache_miss=self._context.output.reuse.miss or UNSET,
        )


Block = Text | Thinking | ToolUse


class V2FrameBuilder(FrameBuilder[TokenEventV2]):
    """Builder of v2 frames: one per block, then one done frame without any text."""

    def __init__(
        self, plan: ResolvedRequest[GenerateJob], context: RequestContext
    ) -> None:
        super().__init__(plan, context)
        self._unsent: list[Block] = []

    def build(self, events: Iterable[TokenEventV2]) -> Sequence[Response]:
        """Build the frames for events that can be sent now."""
        frames: list[Response] = []
        for event in events:
            match event:
                case Progress() | PausedPosition() | Partial() | AudioRead():
                    frames += self._progress_frames(event)
                case DoneV2(usage=usage):
                    self._context.counted_tokens = (
                        usage.input_tokens + usage.output_tokens
                    )
                    frames += self._blocks(merge_deltas(self._unsent))
                    frames.append(self._done(event))
                case Text() | Thinking() | ToolUse():
                    if self._streams:
                        frames += self._blocks([event])
                    else:
                        self._unsent.append(event)
        return frames

    def build_cancelled(self, detail: Detail | UnsetType) -> Sequence[Response]:
        """Build the frames of unsent blocks, and the done frame."""
        output = self._context.output
        usage = UsageV2(
            self._context.input_tokens,
            output.n_tokens,
            output.reuse.cached_tokens,
            is_estimate=True if self._context.is_estimate else UNSET,
        )
        done = DoneV2(
            stop_reason="cancelled",
            usage=usage,
            structure_complete=False if self._reports_structure else None,
            warnings=tuple(self._context.output.warnings),
            token_ids=tuple(output.unsent_token_ids),
        )
        return [*self._blocks(merge_deltas(self._unsent)), self._done(done, detail)]

    def _progress_frames(
        self, event: Progress | PausedPosition | Partial | AudioRead
    ) -> Sequence[ProgressFrame]:
        match event:
            case Progress() | PausedPosition():
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
                self._context.on_audio_read(n_bytes)
                return []

    def _blocks(self, blocks: Iterable[Block]) -> list[BlockFrame]:
        frames = [
            BlockFrame(
                id=self._id,
                block=_block(block),
                logprobs=list(block.logprobs)
                if isinstance(block, Text) and block.logprobs
                else UNSET,
                token_ids=list(block.token_ids) or UNSET,
            )
            for block in blocks
        ]
        self.has_begun |= bool(frames)
        return frames

    def _done(self, event: DoneV2, detail: Detail | UnsetType = UNSET) -> BlocksDone:
        self.stop_reason = event.stop_reason
        return BlocksDone(
            id=self._id,
            usage=_with_draft_counts(event.usage, self._context.output.draft_counts),
            stop_reason=event.stop_reason,
            backend=self._context.backend or "",
            seed=self._seed if self._context.has_seed else UNSET,
            timing=self._context.timing(event.usage.output_tokens),
            stop_sequence=_or_unset(event.stop_sequence),
            stop_token_id=_or_unset(event.stop_token_id),
            token_ids=list(event.token_ids) or UNSET,
            end_token_id=_or_unset(event.end_token_id),
            detail=detail,
            structure_complete=_or_unset(event.structure_complete),
            warnings=_warnings(event.warnings),
            cache_miss=self._context.output.reuse.miss or UNSET,
            transcription=self._transcription(event),
        )

    def _transcription(self, event: DoneV2) -> TranscriptionFacts | UnsetType:
        if (transcription := event.transcription) is None:
            return UNSET
        self._context.transcribed(transcription, event.usage.input_tokens)
        return TranscriptionFacts(
            language=transcription.language,
            language_probability=_or_unset(transcription.language_probability),
            audio_ms=transcription.audio_ms,
            real_time_factor=transcription.real_time_factor,
            latency_ms=_or_unset(self._context.latency_ms()),
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


def _with_draft_counts(usage: U, draft_counts: DraftCounts) -> U:
    if not draft_counts.drafted_tokens:
        return usage
    return replace(
        usage,
        drafted_tokens=draft_counts.drafted_tokens,
        accepted_tokens=draft_counts.accepted_tokens,
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
