from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.backend.events import AudioRead, DoneV2, Partial, Span, Text, Transcription
from inferd.backend.interface import CacheReuse, Prepared
from inferd.backend.job import Media, TranscribeJob
from inferd.engine.channel.demultiplexer import JobMessage, WorkerDiedError
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.speech import SpeechStream
from inferd.errors import InternalError, InvalidRequestError
from inferd.ipc.worker import Failed, PromptReady, Segment, Transcribed, TranscriptEnded
from inferd.wire.responses import DraftCounts, Usage, UsageV2
from tests.cases import each_case
from tests.unit.strategies import chunked


def span(start_ms: int, end_ms: int, no_speech: float | None = None) -> Span:
    return Span(start_ms=start_ms, end_ms=end_ms, no_speech=no_speech)


def segment(text: str | bytes, start_ms: int = 0, **fields: Any) -> Segment:
    data = text.encode() if isinstance(text, str) else text
    return Segment(text=data, start_ms=start_ms, end_ms=start_ms + 1000, **fields)


def heard(*segments: Segment, **fields: Any) -> Transcribed:
    return Transcribed(ticket=1, segments=[*segments], n_tokens=len(segments), **fields)


def end(**fields: Any) -> TranscriptEnded:
    given: dict[str, Any] = {
        "stop_reason": "end",
        "usage": Usage(prompt_tokens=553, completion_tokens=2),
        "language": "en",
        "audio_ms": 11000,
        "computing_ms": 700,
        **fields,
    }
    return TranscriptEnded(ticket=1, **given)


def stream_of(
    *answers: JobMessage, is_open: bool = False, wants_partials: bool = False
) -> SpeechStream:
    results = ResultQueue[JobMessage]()
    for answer in answers:
        results.put(answer)
    audio = Media(kind="audio", id="s", n_bytes=8, sample_rate=16000, is_open=is_open)
    job = TranscribeJob(audio=audio, wants_partials=wants_partials)
    return SpeechStream(results, Prepared(ticket=1, job=job, input_tokens=3))


async def events_of(stream: SpeechStream) -> list[Any]:
    events: list[Any] = []
    with trio.fail_after(5):
        async for batch in stream:
            assert batch, "an empty batch"
            events += batch
    return events


async def test_a_transcript_has_text_with_times_and_one_end(autojump_clock):
    answers = heard(segment(" Hello"), segment(" you.", 1000, no_speech=0.25)), end()
    assert await events_of(stream_of(*answers)) == [
        Text("Hello", span=span(0, 1000)),
        Text(" you.", span=span(1000, 2000, 0.25)),
        DoneV2(
            stop_reason="end_turn",
            usage=UsageV2(553, 2),
            transcription=Transcription(
                language="en",
                language_probability=None,
                audio_ms=11000,
                computing_ms=700,
            ),
        ),
    ]


async def test_the_end_tells_the_language_that_was_found_and_why_it_came(
    autojump_clock,
):
    ended = end(stop_reason="length", language="de", language_probability=0.5)
    [done] = await events_of(stream_of(ended))
    assert done.stop_reason == "max_tokens"
    assert done.transcription.language_probability == 0.5


async def test_its_tokens_are_counted_from_the_first_on(autojump_clock):
    stream = stream_of(heard(), heard(segment("a"), segment("b")), heard(segment("c")))
    assert stream.first_token_at is None
    await trio.sleep(7)
    await anext(stream)
    assert stream.n_tokens == 3
    assert stream.first_token_at == 7
    assert (stream.warnings, stream.reuse, stream.draft_counts) == (
        (),
        CacheReuse(),
        DraftCounts(),
    )


async def test_audio_without_speech_gives_no_text(autojump_clock):
    stream = stream_of(heard(n_bytes_read=8), is_open=True)
    assert await anext(stream) == [AudioRead(8)]
    assert stream.first_token_at is None


async def test_spaces_are_left_out_only_where_the_text_begins(autojump_clock):
    pieces = heard(segment(" "), segment("  a ", 1000), segment(" b", 2000))
    *texts, _ = await events_of(stream_of(pieces, end()))
    assert [each.delta for each in texts] == ["a ", " b"]
    assert texts[0].span == span(0, 2000)


async def test_a_character_in_two_segments_comes_with_the_second(autojump_clock):
    first, second = segment(b"a\xc3"), segment(b"\xa9", 1000)
    *texts, _ = await events_of(stream_of(heard(first, second), end()))
    assert texts == [Text("a", span=span(0, 1000)), Text("é", span=span(1000, 2000))]


async def test_a_segment_that_gives_no_text_yet_lends_its_beginning(autojump_clock):
    first, second = segment(b"\xc3"), segment(b"\xa9", 1000)
    text, _ = await events_of(stream_of(heard(first), heard(second), end()))
    assert text == Text("é", span=span(0, 2000))


async def test_half_a_character_at_the_end_is_told(autojump_clock):
    *texts, _ = await events_of(stream_of(heard(segment(b"a\xc3")), end()))
    assert [each.delta for each in texts] == ["a", "\N{REPLACEMENT CHARACTER}"]


@given(st.text(max_size=9).flatmap(lambda text: chunked(text.encode())))
def test_any_split_gives_the_same_text(pieces):
    async def joined() -> str:
        answers = [heard(segment(piece, n)) for n, piece in enumerate(pieces)]
        *texts, _ = await events_of(stream_of(*answers, end()))
        starts = [each.span.start_ms for each in texts]
        assert starts == sorted(starts)
        return "".join(each.delta for each in texts)

    assert trio.run(joined) == b"".join(pieces).decode().lstrip(" ")


# --- open sound -------------------------------------------------------------------------


async def test_provisional_text_is_for_jobs_that_want_it(autojump_clock):
    partial = heard(partial=segment(b" Hel\xc3", 500))
    events = await events_of(stream_of(partial, end(), wants_partials=True))
    assert events[:-1] == [Partial("Hel", span(500, 1500))]
    assert len(await events_of(stream_of(partial, end()))) == 1


async def test_bytes_read_of_open_audio_are_reported(autojump_clock):
    answers = [heard(n_bytes_read=n) for n in (0, 8, 8, 4, 12)]
    events = await events_of(stream_of(*answers, end(), is_open=True))
    assert events[:-1] == [AudioRead(8), AudioRead(12)]
    assert len(await events_of(stream_of(*answers, end()))) == 1


# --- what goes wrong --------------------------------------------------------------------


@each_case(
    ("answer", "error"),
    [
        (Failed(ticket=1, reason="bad", by_request=True), InvalidRequestError),
        (Failed(ticket=1, reason="bad"), InternalError),
        (PromptReady(ticket=1, prompt_tokens=1), InternalError),
        (b"piece", InternalError),
    ],
)
async def test_anything_else_is_a_failure(answer, error, autojump_clock):
    with pytest.raises(error):
        await events_of(stream_of(heard(segment("a")), answer))


async def test_a_death_is_raised_after_earlier_events(autojump_clock):
    stream = stream_of(heard(segment("a")))
    stream._results.fail(WorkerDiedError("gone"))
    assert await anext(stream) == [Text("a", span=span(0, 1000))]
    with pytest.raises(WorkerDiedError):
        await anext(stream)


async def test_the_end_cancels_a_block(autojump_clock):
    stream = stream_of()
    stream._results.put_final(end())
    with stream.until_over():
        await trio.sleep_forever()
    assert len(await events_of(stream)) == 1
