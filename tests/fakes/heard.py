"""Frames of a transcription, as the bridge gets them."""

from collections.abc import Sequence

from msgspec import UNSET

from inferd.bridge.translation.question import Asked, Question
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import BlockFrame, Logprob, TextDelta, UsageV2
from inferd.wire.speech import TranscriptionFacts

TOKEN = "x"
ASKED = Asked(request_id="req_1", created_s=7, default_max_tokens=99)


def segment(
    start_ms: int,
    end_ms: int,
    text: str,
    no_speech: float | None = None,
    logprobs: Sequence[float] = (),
) -> BlockFrame:
    """Make the frame of a segment or a word, with tokens of these log probabilities."""
    return BlockFrame(
        id="req_1",
        block=TextDelta(
            text,
            start_ms=start_ms,
            end_ms=end_ms,
            no_speech=UNSET if no_speech is None else no_speech,
        ),
        logprobs=[
            Logprob(token=TOKEN, id=number, bytes=[120], logprob=each, top_logprobs=[])
            for number, each in enumerate(logprobs, 7)
        ]
        or UNSET,
    )


def ended(
    stop_reason: str = "end_turn", *, has_facts: bool = True, probability: float = 0.75
) -> ClientBlocksDone:
    """Make the end of a transcription of four seconds."""
    facts = TranscriptionFacts(
        language="de",
        language_probability=probability,
        audio_ms=4000,
        real_time_factor=0.5,
    )
    return ClientBlocksDone(
        id="req_1",
        usage=UsageV2(205, 9),
        stop_reason=stop_reason,
        backend="speech",
        transcription=facts if has_facts else UNSET,
    )


def body_of(question: Question, *frames: BlockFrame | ClientBlocksDone) -> bytes:
    """Give the body of an answer that is not streamed."""
    for frame in frames:
        assert not list(question.answer.add(frame))
    return question.answer.whole()
