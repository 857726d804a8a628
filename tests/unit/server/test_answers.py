import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from inferd.events import (
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
from inferd.job import GenerateJob, Sampling, Structure, ToolChoice, Turn
from inferd.resolve.plan import Plan
from inferd.routing import GENERATES
from inferd.server.activity import Activity
from inferd.server.answers import BlocksAnswer, TextAnswer
from inferd.server.peer import Peer
from inferd.wire.codec import encode
from inferd.wire.responses import (
    Alternative,
    Guesses,
    Logprob,
    Response,
    Usage,
    UsageV2,
)
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


def plan(*, streams: bool = True) -> Plan[GenerateJob]:
    sampling = Sampling(temperature=0, top_p=1, top_k=0, seed=42)
    job = GenerateJob(turns=[Turn("user", "hi")], max_tokens=9, sampling=sampling)
    return Plan(job=job, needs=(GENERATES,), streams=streams)


def begin() -> Activity:
    activity = Activity(PEER, "infer.sock", "r", trio.current_time())
    activity.backend = "chat"
    return activity


def text_answer(*, streams: bool = True) -> TextAnswer:
    return TextAnswer(plan(streams=streams), begin())


def blocks_answer(*, streams: bool = True) -> BlocksAnswer:
    return BlocksAnswer(plan(streams=streams), begin())


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
async def test_what_was_guessed_is_told_however_an_answer_ends(make):
    for ends in (
        lambda answer: answer.frames_of([DONE if make is text_answer else DONE_V2]),
        lambda answer: answer.cancelled(UNSET),
    ):
        answer = make()
        answer._activity.output = Spoken(guesses=Guesses(**GUESSED))
        [done] = read(ends(answer))
        assert done["usage"].items() > GUESSED.items()


@pytest.mark.parametrize("make", [text_answer, blocks_answer])
async def test_where_nothing_was_guessed_nothing_is_said_of_it(make):
    [done] = read(make().cancelled(UNSET))
    assert not GUESSED.keys() & done["usage"].keys()


# --- v1 ---------------------------------------------------------------------------------


async def test_v1_is_tokens_and_a_done_with_all_of_their_text():
    answer = text_answer()
    assert read(answer.frames_of([Token("Hel"), Token("lo")])) == [
        {"type": "token", "id": "r", "content": "Hel"},
        {"type": "token", "id": "r", "content": "lo"},
    ]
    assert answer.stop_reason is None
    assert read(answer.frames_of([Token("!"), DONE])) == [
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
    assert answer.frames_of([Token("Hel"), Token("lo")]) == []
    [done] = read(answer.frames_of([DONE]))
    assert done["content"] == "Hello"


@pytest.mark.parametrize("streams", [True, False])
async def test_v1_that_is_cut_short_tells_the_text_so_far(streams):
    activity = begin()
    answer = TextAnswer(plan(streams=streams), activity)
    answer.frames_of([Token("Hel"), Token("lo")])
    activity.input_tokens, activity.output.n_tokens = 5, 3
    [done] = read(answer.cancelled(UNSET))
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
    assert read(answer.frames_of(events)) == [
        frame(type="thinking", delta="hm"),
        frame(type="text", delta="Hel"),
        frame(type="text", delta="lo"),
        frame(type="tool_use", tool_call_id="tc-0", name="f", input={"a": [1, None]}),
    ]
    assert read(answer.frames_of([DONE_V2])) == [done_v2()]
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
        assert answer.frames_of([event]) == []
    frames = read(answer.frames_of([Text("f"), DONE_V2]))
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
async def test_v2_done_tells_what_there_is_to_tell(fields, told):
    event = DoneV2(stop_reason="max_tokens", usage=UsageV2(5, 2, 1), **fields)
    assert read(blocks_answer().frames_of([event])) == [done_v2(**told)]


async def test_log_probabilities_go_with_the_text_they_belong_to():
    answer = blocks_answer()
    first, second = read(answer.frames_of([Text("ab", (logprob("ab"),)), Text("c")]))
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
    answer.frames_of([Text("a", (logprob("a"),)), Text("b", (logprob("b"),))])
    text, _ = read(answer.frames_of([DONE_V2]))
    assert text["block"]["delta"] == "ab"
    assert [each["token"] for each in text["logprobs"]] == ["a", "b"]


@pytest.mark.parametrize("detail", [UNSET, "deadline"])
async def test_v2_that_is_cut_short_gives_what_was_held_back(detail):
    activity = begin()
    answer = BlocksAnswer(plan(streams=False), activity)
    answer.frames_of([Text("a"), Text("b")])
    activity.input_tokens, activity.output.n_tokens = 5, 3
    text, done = read(answer.cancelled(detail))
    assert text == frame(type="text", delta="ab")
    assert done["stop_reason"] == answer.stop_reason == "cancelled"
    assert done.get("detail") == ("deadline" if detail == "deadline" else None)
    assert done["usage"] == {"input_tokens": 5, "output_tokens": 3, "cached_tokens": 0}


async def test_v2_that_is_cut_short_tells_the_warnings_so_far():
    activity = begin()
    answer = BlocksAnswer(plan(), activity)
    answer.frames_of([Text("<c>?</c>")])
    activity.output.warnings = [MalformedToolCall("<c>?</c>")]
    [done] = read(answer.cancelled(UNSET))
    assert done["warnings"] == [{"code": "tool_call_malformed", "raw": "<c>?</c>"}]


async def test_v2_that_is_cut_short_repeats_nothing_that_went_out():
    answer = blocks_answer()
    answer.frames_of([Text("a"), Text("b")])
    [done] = read(answer.cancelled(UNSET))
    assert done["type"] == "done"


# --- both -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [text_answer, blocks_answer])
@pytest.mark.parametrize("streams", [True, False])
async def test_progress_is_told_and_is_no_part_of_the_answer(make, streams):
    answer = make(streams=streams)
    [told] = read(answer.frames_of([Progress(512, 2048)]))
    assert told == {
        "type": "status",
        "id": "r",
        "status": "prefill",
        "processed": 512,
        "total": 2048,
    }
    assert not answer.has_begun


async def test_an_answer_has_begun_with_its_first_frame():
    text, blocks = text_answer(), blocks_answer()
    held_text, held_blocks = text_answer(streams=False), blocks_answer(streams=False)
    assert not text.has_begun
    for answer in (text, held_text):
        answer.frames_of([Token("a")])
    for each in (blocks, held_blocks):
        each.frames_of([Text("a")])
    begun = [each.has_begun for each in (text, held_text, blocks, held_blocks)]
    assert begun == [True, False, True, False]


async def test_what_was_cut_short_before_a_backend_was_found_names_none():
    activity = Activity(PEER, "infer.sock", "r", trio.current_time())
    for answer in (TextAnswer(plan(), activity), BlocksAnswer(plan(), activity)):
        [done] = read(answer.cancelled(UNSET))
        assert done["backend"] == ""


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, None),
        ({"structure": YES}, False),
        ({"tool_choice": ToolChoice("required")}, False),
        ({"structure": YES, "max_tokens": 0}, None),
        ({"structure": YES, "prefill_only": True}, None),
    ],
)
async def test_a_structure_that_was_cut_short_is_open_if_one_was_to_be_written(
    fields, told
):
    asked = plan()
    asked = replace(asked, job=replace(asked.job, **fields))
    for answer in (TextAnswer(asked, begin()), BlocksAnswer(asked, begin())):
        [done] = read(answer.cancelled(UNSET))
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
        pieces = [each for event in events for each in streamed.frames_of([event])]
        whole = held.frames_of([*events, DONE_V2])
        assert runs(read([*pieces, *streamed.frames_of([DONE_V2])])) == runs(
            read(whole)
        )
        assert len(runs(read(whole))) == len(whole)

    trio.run(main)


# --- a transcription ----------------------------------------------------------------------

HELLO = Text("Hello", span=Span(start_ms=0, end_ms=600, no_speech=0.125))
YOU = Text(" you", span=Span(start_ms=600, end_ms=900))
HEARD = Transcription(
    language="en", language_probability=None, audio_ms=11000, computing_ms=700
)


@pytest.mark.parametrize("streams", [True, False])
async def test_text_that_was_said_has_its_times_streamed_or_not(streams):
    answer = blocks_answer(streams=streams)
    frames = read(answer.frames_of([HELLO, YOU, DONE_V2]))
    assert frames[:-1] == [
        frame(type="text", delta="Hello", start_ms=0, end_ms=600, no_speech=0.125),
        frame(type="text", delta=" you", start_ms=600, end_ms=900),
    ]


async def test_what_may_still_change_is_no_part_of_the_answer():
    answer = blocks_answer()
    partial = Partial("Hel", Span(start_ms=100, end_ms=400))
    assert read(answer.frames_of([partial, AudioRead(4)])) == [
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
    assert blocks_answer(streams=False).frames_of([partial]) == []


async def test_what_is_not_needed_any_more_is_told_to_who_sends_it():
    answer, told = blocks_answer(), list[int]()
    answer._activity.on_heard = told.append
    assert answer.frames_of([AudioRead(4), AudioRead(8)]) == []
    assert told == [4, 8]


async def test_its_end_tells_how_long_it_took():
    answer = blocks_answer()
    [done] = read(answer.frames_of([replace(DONE_V2, transcription=HEARD)]))
    assert done["transcription"] == {
        "language": "en",
        "audio_ms": 11000,
        "real_time_factor": 0.0636,
    }
    assert answer._activity.facts == {"audio_ms": 11000, "real_time_factor": 0.0636}
    assert answer._activity.input_tokens == DONE_V2.usage.input_tokens


async def test_a_seed_of_which_nothing_is_drawn_is_not_told_however_an_answer_ends():
    for ends in (
        lambda answer: answer.frames_of([DONE_V2]),
        lambda answer: answer.cancelled(UNSET),
    ):
        answer = blocks_answer()
        answer._activity.has_seed = False
        [done] = read(ends(answer))
        assert "seed" not in done


async def test_the_end_of_one_that_was_open_tells_the_time_since(autojump_clock):
    answer = blocks_answer()
    answer._activity.sound_ended_at = trio.current_time()
    await trio.sleep(0.25)
    heard = replace(HEARD, language_probability=0.5, audio_ms=0)
    [done] = read(answer.frames_of([replace(DONE_V2, transcription=heard)]))
    assert done["transcription"] == {
        "language": "en",
        "language_probability": 0.5,
        "audio_ms": 0,
        "real_time_factor": 0.0,
        "latency_ms": 250.0,
    }
