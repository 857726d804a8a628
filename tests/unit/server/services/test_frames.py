import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from inferd import surfaces
from inferd.backend.events import (
    AudioRead,
    Done,
    DoneV2,
    MalformedToolCall,
    Partial,
    Progress,
    Span,
    Text,
    Thinking,
    Token,
    TokenEventV2,
    ToolUse,
    Transcription,
)
from inferd.backend.job import GenerateJob, Sampling, Structure, ToolChoice, Turn
from inferd.resolve.request import ResolvedRequest
from inferd.routing import GENERATES
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.server.services.frames import V1FrameBuilder, V2FrameBuilder
from inferd.wire.codec import encode
from inferd.wire.responses import (
    Alternative,
    DraftCounts,
    Logprob,
    Response,
    Usage,
    UsageV2,
)
from tests.cases import each_case
from tests.fakes.output import Spoken

PEER = Peer(pid=17, uid=1000, gid=100)
DONE = Done(stop_reason="length", usage=Usage(5, 2, 1))
DONE_V2 = DoneV2(stop_reason="max_tokens", usage=UsageV2(5, 2, 1))
YES = Structure(kind="regex", source="yes")
CALL = ToolUse(tool_call_id="tc-0", name="f", input={"a": [1, None]})


def logprob(token: str) -> Logprob:
    chosen = Alternative(token=token, id=7, bytes=list(token.encode()), logprob=-0.5)
    return Logprob(
        token=token,
        id=7,
        bytes=list(token.encode()),
        logprob=-0.5,
        top_logprobs=[chosen],
    )


def plan(*, streams: bool = True) -> ResolvedRequest[GenerateJob]:
    sampling = Sampling(temperature=0, top_p=1, top_k=0, seed=42)
    job = GenerateJob(turns=[Turn("user", "hi")], max_tokens=9, sampling=sampling)
    return ResolvedRequest(job=job, needs=(GENERATES,), streams=streams)


def begin() -> RequestContext:
    context = RequestContext(PEER, surfaces.INFER, "r", trio.current_time())
    context.backend = "chat"
    return context


def text_answer(*, streams: bool = True) -> V1FrameBuilder:
    return V1FrameBuilder(plan(streams=streams), begin())


def blocks_answer(*, streams: bool = True) -> V2FrameBuilder:
    return V2FrameBuilder(plan(streams=streams), begin())


def read(frames: list[Response] | Any) -> list[dict[str, Any]]:
    """Read frames as a client does, without what depends on the time."""
    told = [json.loads(encode(frame)) for frame in frames]
    for frame in told:
        assert frame.pop("timing", None) is not None or frame["type"] != "done"
    return told


def done_v2(**fields: Any) -> dict[str, Any]:
    return {
        "type": "done",
        "id": "r",
        "usage": {"input_tokens": 5, "output_tokens": 2, "cached_tokens": 1},
        "stop_reason": "max_tokens",
        "backend": "chat",
        "seed": 42,
        **fields,
    }


def frame(**block: Any) -> dict[str, Any]:
    return {"type": "frame", "id": "r", "block": block}


GUESSED = {"drafted_tokens": 9, "accepted_tokens": 0}


@pytest.mark.parametrize("make", [text_answer, blocks_answer])
async def test_draft_counts_are_reported_however_an_answer_ends(make):
    for ends in (
        lambda answer: answer.build([DONE if make is text_answer else DONE_V2]),
        lambda answer: answer.build_cancelled(UNSET),
    ):
        answer = make()
        answer._context.output = Spoken(draft_counts=DraftCounts(**GUESSED))
        [done] = read(ends(answer))
        assert done["usage"].items() > GUESSED.items()


@pytest.mark.parametrize("make", [text_answer, blocks_answer])
async def test_without_drafted_tokens_there_are_no_draft_counts(make):
    [done] = read(make().build_cancelled(UNSET))
    assert not GUESSED.keys() & done["usage"].keys()


# --- v1 ---------------------------------------------------------------------------------


async def test_v1_is_tokens_and_a_done_with_all_of_their_text():
    answer = text_answer()
    assert read(answer.build([Token("Hel"), Token("lo")])) == [
        {"type": "token", "id": "r", "content": "Hel"},
        {"type": "token", "id": "r", "content": "lo"},
    ]
    assert answer.stop_reason is None
    assert read(answer.build([Token("!"), DONE])) == [
        {"type": "token", "id": "r", "content": "!"},
        {
            "type": "done",
            "id": "r",
            "content": "Hello!",
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 1},
            "stop_reason": "length",
            "backend": "chat",
            "seed": 42,
        },
    ]
    assert answer.stop_reason == "length"


async def test_v1_without_streaming_is_done_alone():
    answer = text_answer(streams=False)
    assert answer.build([Token("Hel"), Token("lo")]) == []
    [done] = read(answer.build([DONE]))
    assert done["content"] == "Hello"


@pytest.mark.parametrize("streams", [True, False])
async def test_cancelled_v1_has_the_text_so_far(streams):
    context = begin()
    answer = V1FrameBuilder(plan(streams=streams), context)
    answer.build([Token("Hel"), Token("lo")])
    context.input_tokens, context.output.n_tokens = 5, 3
    [done] = read(answer.build_cancelled(UNSET))
    assert (done["content"], done["stop_reason"]) == ("Hello", "cancelled")
    assert (done["usage"]["prompt_tokens"], done["usage"]["completion_tokens"]) == (
        5,
        3,
    )
    assert answer.stop_reason == "cancelled"


# --- v2 ---------------------------------------------------------------------------------


async def test_v2_is_a_frame_for_each_event_and_a_done_without_text():
    answer = blocks_answer()
    events: list[TokenEventV2] = [Thinking("hm"), Text("Hel"), Text("lo"), CALL]
    assert read(answer.build(events)) == [
        frame(type="thinking", delta="hm"),
        frame(type="text", delta="Hel"),
        frame(type="text", delta="lo"),
        frame(type="tool_use", tool_call_id="tc-0", name="f", input={"a": [1, None]}),
    ]
    assert read(answer.build([DONE_V2])) == [done_v2()]
    assert answer.stop_reason == "max_tokens"


async def test_v2_without_streaming_is_each_run_as_one_frame_and_then_done():
    answer = blocks_answer(streams=False)
    events: list[TokenEventV2] = [
        Text("a"),
        Text("b"),
        Thinking("c"),
        Thinking("d"),
        CALL,
        CALL,
        Text("e"),
    ]
    for event in events:
        assert answer.build([event]) == []
    frames = read(answer.build([Text("f"), DONE_V2]))
    call = frame(type="tool_use", tool_call_id="tc-0", name="f", input={"a": [1, None]})
    assert frames == [
        frame(type="text", delta="ab"),
        frame(type="thinking", delta="cd"),
        call,
        call,
        frame(type="text", delta="ef"),
        done_v2(),
    ]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stop_sequence": "END"}, {"stop_sequence": "END"}),
        ({"stop_token_id": 0}, {"stop_token_id": 0}),
        (
            {"warnings": (MalformedToolCall("<c>?"), MalformedToolCall("<c>"))},
            {
                "warnings": [
                    {"code": "tool_call_malformed", "raw": "<c>?"},
                    {"code": "tool_call_malformed", "raw": "<c>"},
                ]
            },
        ),
    ],
)
async def test_v2_done_has_the_fields_that_apply(fields, told):
    event = DoneV2(stop_reason="max_tokens", usage=UsageV2(5, 2, 1), **fields)
    assert read(blocks_answer().build([event])) == [done_v2(**told)]


async def test_log_probabilities_go_with_the_text_they_belong_to():
    answer = blocks_answer()
    first, second = read(answer.build([Text("ab", (logprob("ab"),)), Text("c")]))
    assert first["logprobs"] == [
        {
            "token": "ab",
            "id": 7,
            "bytes": [97, 98],
            "logprob": -0.5,
            "top_logprobs": [
                {"token": "ab", "id": 7, "bytes": [97, 98], "logprob": -0.5}
            ],
        }
    ]
    assert "logprobs" not in second


async def test_log_probabilities_of_a_run_are_joined_as_its_text_is():
    answer = blocks_answer(streams=False)
    answer.build([Text("a", (logprob("a"),)), Text("b", (logprob("b"),))])
    text, _ = read(answer.build([DONE_V2]))
    assert text["block"]["delta"] == "ab"
    assert [each["token"] for each in text["logprobs"]] == ["a", "b"]


@pytest.mark.parametrize("detail", [UNSET, "deadline"])
async def test_cancelled_v2_sends_the_unsent_blocks(detail):
    context = begin()
    answer = V2FrameBuilder(plan(streams=False), context)
    answer.build([Text("a"), Text("b")])
    context.input_tokens, context.output.n_tokens = 5, 3
    text, done = read(answer.build_cancelled(detail))
    assert text == frame(type="text", delta="ab")
    assert done["stop_reason"] == answer.stop_reason == "cancelled"
    assert done.get("detail") == ("deadline" if detail == "deadline" else None)
    assert done["usage"] == {"input_tokens": 5, "output_tokens": 3, "cached_tokens": 0}


async def test_cancelled_v2_has_the_warnings_so_far():
    context = begin()
    answer = V2FrameBuilder(plan(), context)
    answer.build([Text("<c>?</c>")])
    context.output.warnings = [MalformedToolCall("<c>?</c>")]
    [done] = read(answer.build_cancelled(UNSET))
    assert done["warnings"] == [{"code": "tool_call_malformed", "raw": "<c>?</c>"}]


async def test_cancelled_v2_repeats_no_sent_block():
    answer = blocks_answer()
    answer.build([Text("a"), Text("b")])
    [done] = read(answer.build_cancelled(UNSET))
    assert done["type"] == "done"


# --- both -------------------------------------------------------------------------------


@each_case("make", [text_answer, blocks_answer])
@each_case("streams", [True, False])
async def test_progress_is_sent_and_is_no_content(make, streams):
    answer = make(streams=streams)
    [told] = read(answer.build([Progress(512, 2048)]))
    assert told == {
        "type": "status",
        "id": "r",
        "status": "prefill",
        "processed": 512,
        "total": 2048,
    }
    assert not answer.has_begun


async def test_an_answer_has_begun_with_its_first_content_frame():
    text, blocks = text_answer(), blocks_answer()
    held_text, held_blocks = text_answer(streams=False), blocks_answer(streams=False)
    assert not text.has_begun
    for answer in (text, held_text):
        answer.build([Token("a")])
    for each in (blocks, held_blocks):
        each.build([Text("a")])
    begun = [each.has_begun for each in (text, held_text, blocks, held_blocks)]
    assert begun == [True, False, True, False]


async def test_an_answer_cancelled_before_routing_names_no_backend():
    context = RequestContext(PEER, surfaces.INFER, "r", trio.current_time())
    for answer in (V1FrameBuilder(plan(), context), V2FrameBuilder(plan(), context)):
        [done] = read(answer.build_cancelled(UNSET))
        assert done["backend"] == ""


@each_case(
    ("fields", "told"),
    [
        ({}, None),
        ({"structure": YES}, False),
        ({"tool_choice": ToolChoice("required")}, False),
        ({"structure": YES, "max_tokens": 0}, None),
        ({"structure": YES, "prefill_only": True}, None),
    ],
)
async def test_a_cancelled_answer_with_a_structure_says_it_is_incomplete(fields, told):
    asked = plan()
    asked = replace(asked, job=replace(asked.job, **fields))
    for answer in (V1FrameBuilder(asked, begin()), V2FrameBuilder(asked, begin())):
        [done] = read(answer.build_cancelled(UNSET))
        assert done.get("structure_complete") is told


EVENTS = st.lists(
    st.one_of(
        st.text(min_size=1).map(Text), st.text(min_size=1).map(Thinking), st.just(CALL)
    )
)


def runs(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Join what follows one another and has one type."""
    joined: list[tuple[str, str]] = []
    for each in frames:
        block = each.get("block", {"type": each["type"]})
        kind, delta = block["type"], block.get("delta", "")
        if joined and joined[-1][0] == kind != "tool_use":
            delta = joined.pop()[1] + delta
        joined.append((kind, delta))
    return joined


@pytest.mark.slow
@settings(max_examples=100)
@given(events=EVENTS)
def test_streamed_or_not_an_answer_is_the_same(events):
    async def main():
        streamed, held = blocks_answer(), blocks_answer(streams=False)
        pieces = [each for event in events for each in streamed.build([event])]
        whole = held.build([*events, DONE_V2])
        assert runs(read([*pieces, *streamed.build([DONE_V2])])) == runs(read(whole))
        assert len(runs(read(whole))) == len(whole)

    trio.run(main)


# --- a transcription ----------------------------------------------------------------------

HELLO = Text("Hello", span=Span(start_ms=0, end_ms=600, no_speech=0.125))
YOU = Text(" you", span=Span(start_ms=600, end_ms=900))
HEARD = Transcription(
    language="en", language_probability=None, audio_ms=11000, computing_ms=700
)


@pytest.mark.parametrize("streams", [True, False])
async def test_transcribed_text_has_its_times_streamed_or_not(streams):
    answer = blocks_answer(streams=streams)
    frames = read(answer.build([HELLO, YOU, DONE_V2]))
    assert frames[:-1] == [
        frame(type="text", delta="Hello", start_ms=0, end_ms=600, no_speech=0.125),
        frame(type="text", delta=" you", start_ms=600, end_ms=900),
    ]


async def test_a_partial_transcript_is_no_content():
    answer = blocks_answer()
    partial = Partial("Hel", Span(start_ms=100, end_ms=400))
    assert read(answer.build([partial, AudioRead(4)])) == [
        {
            "type": "status",
            "id": "r",
            "status": "partial",
            "text": "Hel",
            "start_ms": 100,
            "end_ms": 400,
        }
    ]
    assert not answer.has_begun
    assert blocks_answer(streams=False).build([partial]) == []


async def test_read_audio_is_reported_to_the_context():
    answer, told = blocks_answer(), list[int]()
    answer._context.on_audio_read = told.append
    assert answer.build([AudioRead(4), AudioRead(8)]) == []
    assert told == [4, 8]


async def test_done_of_a_transcription_has_its_times():
    answer = blocks_answer()
    [done] = read(answer.build([replace(DONE_V2, transcription=HEARD)]))
    assert done["transcription"] == {
        "language": "en",
        "audio_ms": 11000,
        "real_time_factor": 0.0636,
    }
    assert answer._context.stats == {"audio_ms": 11000, "real_time_factor": 0.0636}
    assert answer._context.input_tokens == DONE_V2.usage.input_tokens


async def test_a_transcription_reports_no_seed_however_it_ends():
    for ends in (
        lambda answer: answer.build([DONE_V2]),
        lambda answer: answer.build_cancelled(UNSET),
    ):
        answer = blocks_answer()
        answer._context.has_seed = False
        [done] = read(ends(answer))
        assert "seed" not in done


async def test_done_of_open_audio_has_the_latency_since_its_end(autojump_clock):
    answer = blocks_answer()
    answer._context.audio_ended_at = trio.current_time()
    await trio.sleep(0.25)
    heard = replace(HEARD, language_probability=0.5, audio_ms=0)
    [done] = read(answer.build([replace(DONE_V2, transcription=heard)]))
    assert done["transcription"] == {
        "language": "en",
        "language_probability": 0.5,
        "audio_ms": 0,
        "real_time_factor": 0.0,
        "latency_ms": 250.0,
    }
