from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
from hypothesis import given, settings, strategies as st

from inferd.backend.events import (
    Done,
    DoneV2,
    MalformedToolCall,
    Progress,
    Text,
    Thinking,
    Token,
    ToolUse,
)
from inferd.backend.interface import Prepared
from inferd.backend.job import (
    GenerateJob,
    PastCall,
    Sampling,
    Structure,
    ToolChoice,
    ToolSpec,
    Turn,
)
from inferd.dialects.dialect import Dialect, ParsedCall, Region
from inferd.dialects.families.granite import GRANITE
from inferd.dialects.families.llama3 import LLAMA3
from inferd.dialects.families.mistral import MISTRAL
from inferd.engine.channel.demultiplexer import (
    JobMessage,
    PrefillProgress,
    TokenId,
    WorkerDiedError,
)
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.generation import BlockStream, TextStream
from inferd.errors import InternalError, InvalidRequestError
from inferd.ipc.worker import Embedded, Ended, Failed, PromptReady, Scored
from inferd.output.parser import merge_deltas
from inferd.wire.responses import Alternative, DraftCounts, Logprob, Usage, UsageV2
from tests.cases import each_case
from tests.fakes.worker import ended
from tests.unit.dialects.made_up import MADE_UP
from tests.unit.strategies import chunked

CALL = '<c>f{"a": 1}</c>'
USE = ToolUse(tool_call_id="tc-0", name="f", input={"a": 1})
USAGE = UsageV2(3, 2, 1)
TOOL = ToolSpec(name="f", description="", input_schema="{}")
CALLED = PastCall(id="tc-0", name="f", arguments="{}")
SCHEMA = Structure(kind="json_schema", source="{}")
REQUIRED = ToolChoice("required")


def prepared(
    *stops: str, open_thought: str = "", **fields: Any
) -> Prepared[GenerateJob]:
    job = GenerateJob(
        turns=fields.pop("turns", [Turn("user", "hi")]),
        tools=fields.pop("tools", (TOOL,)),
        max_tokens=fields.pop("max_tokens", 99),
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        stops=stops,
        n_alternatives=fields.pop("n_alternatives", 1),
        **fields,
    )
    return Prepared(ticket=1, job=job, input_tokens=3, open_thought=open_thought)


def results_of(*answers: JobMessage | str) -> ResultQueue[JobMessage]:
    results = ResultQueue[JobMessage]()
    for answer in answers:
        results.put(answer.encode() if isinstance(answer, str) else answer)
    return results


def text_stream(
    *answers: JobMessage | str, stops: tuple[str, ...] = (), **fields: Any
) -> TextStream:
    return TextStream(results_of(*answers), prepared(*stops, **fields))


def block_stream(
    *answers: JobMessage | str, stops: tuple[str, ...] = (), **fields: Any
) -> BlockStream:
    return BlockStream(results_of(*answers), prepared(*stops, **fields), MADE_UP)


async def events_of(stream: TextStream | BlockStream) -> list[Any]:
    events: list[Any] = []
    with trio.fail_after(5):
        async for batch in stream:
            assert batch, "an empty batch"
            events += batch
    return events


def logprob(token: str) -> Logprob:
    chosen = Alternative(token=token, id=7, bytes=list(token.encode()), logprob=-0.5)
    return Logprob(
        token=token,
        id=7,
        bytes=list(token.encode()),
        logprob=-0.5,
        top_logprobs=[chosen],
    )


def end(n_tokens: int = 2, **fields: Any) -> Ended:
    return ended(1, n_tokens, **fields)


# --- text -------------------------------------------------------------------------------


async def test_v1_is_the_pieces_as_text_and_one_end(autojump_clock):
    events = await events_of(text_stream("Hel", "lo", end(stop_reason="length")))
    assert events == [
        Token("Hel"),
        Token("lo"),
        Done(stop_reason="length", usage=Usage(3, 2, 1)),
    ]


async def test_v1_omits_marker_tokens(autojump_clock):
    results = results_of("<|a|>", "a", "<|a|", ">", "<|a|>b", "<|b|>", end(6))
    stream = TextStream(results, prepared("b<|"), frozenset([b"<|a|>", b"<|b|>"]))
    *tokens, done = await events_of(stream)
    assert "".join(token.text for token in tokens) == "a<|a|><|a|>b"
    assert stream.n_tokens == done.usage.completion_tokens == 6


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_draft_counts_are_summed_up(make, autojump_clock):
    guesses = DraftCounts(drafted_tokens=3, accepted_tokens=1)
    stream = make(guesses, "a", guesses, "STOP", guesses, "b", stops=("STOP",))
    assert len(await events_of(stream)) == 2
    assert stream.draft_counts == DraftCounts(drafted_tokens=6, accepted_tokens=2)


async def test_v2_is_the_pieces_as_text_and_one_end(autojump_clock):
    events = await events_of(block_stream("Hel", "lo", end(stop_reason="length")))
    assert events == [
        Text("Hel"),
        Text("lo"),
        DoneV2(stop_reason="max_tokens", usage=USAGE),
    ]


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_tokens_are_counted_as_they_come(make, autojump_clock):
    stream = make("a", b"\xc3")
    assert stream.n_tokens == 0
    await anext(aiter(stream))
    assert stream.n_tokens == 2


@pytest.mark.parametrize("ending", [end(), b"<stop>"])
async def test_tokens_that_come_at_once_with_the_first_are_first_ones(
    ending, autojump_clock, nursery
):
    results = results_of(PrefillProgress(3), b"a", b"b", ending)
    stream = BlockStream(results, prepared("<stop>"), MADE_UP)
    await events_of(stream)
    assert stream.n_first_tokens == stream.n_tokens >= 2

    results = results_of(b"a", b"b")
    stream = BlockStream(results, prepared(), MADE_UP)
    nursery.start_soon(events_of, stream)
    for answer in (b"c", b"d", end()):
        await trio.sleep(1)
        results.put(answer)
    await trio.sleep(1)
    assert (stream.n_first_tokens, stream.n_tokens) == (2, 4)


@pytest.mark.parametrize(("stops", "held"), [(("abcd",), b"abc"), ((), b"<c>")])
async def test_the_first_token_is_noted_when_it_comes_though_its_text_is_held_back(
    stops, held, autojump_clock, nursery
):
    results = results_of(PrefillProgress(3))
    stream = BlockStream(results, prepared(*stops), MADE_UP)
    nursery.start_soon(events_of, stream)
    await trio.sleep(1)
    assert stream.first_token_at is None
    for answer in (held, b"x", end()):
        results.put(answer)
        await trio.sleep(1)
    assert stream.first_token_at == 1


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_an_answer_without_a_token_has_no_first_one(make, autojump_clock):
    stream = make(PrefillProgress(3), end())
    await events_of(stream)
    assert stream.first_token_at is None


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_characters_are_whole_wherever_pieces_end(make, autojump_clock):
    pieces = [b"\xc3", b"\xa9\xe2\x82", b"\xac", b"", b"\xf0\x9f"]
    *words, _ = await events_of(make(*pieces, end()))
    texts = [getattr(each, "text", getattr(each, "delta", "")) for each in words]
    assert texts == ["é", "€", "\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_an_answer_of_nothing_is_its_end_alone(make, autojump_clock):
    assert len(await events_of(make(b"", b"", end()))) == 1


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_progress_comes_as_it_is_told(make, autojump_clock):
    events = await events_of(make(PrefillProgress(0), PrefillProgress(3), "a", end()))
    assert events[:2] == [Progress(0, 3), Progress(3, 3)]
    assert len(events) == 4


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_after_its_end_a_stream_stays_at_its_end(make, autojump_clock):
    stream = make("a", end())
    assert len(await events_of(stream)) == 2
    assert await events_of(stream) == []


# --- stop strings -----------------------------------------------------------------------


async def test_a_stop_string_ends_v1_and_is_not_sent(autojump_clock):
    events = await events_of(text_stream("a<E", "ND>b", "c", stops=("<END>",)))
    assert events == [Token("a"), Done(stop_reason="end", usage=Usage(3, 2))]


async def test_a_stop_string_ends_v2_and_is_named(autojump_clock):
    events = await events_of(block_stream("a<E", "ND>b", "c", stops=("x", "<END>")))
    assert events == [
        Text("a"),
        DoneV2(stop_reason="stop_sequence", usage=UsageV2(3, 2), stop_sequence="<END>"),
    ]


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_results_after_a_stop_string_are_ignored(make, autojump_clock):
    stream = make(
        "aSTOPb", "c", PromptReady(ticket=1, prompt_tokens=1), stops=("STOP",)
    )
    assert len(await events_of(stream)) == 2
    assert stream.n_tokens == 1


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_what_might_have_been_a_stop_string_is_sent_at_the_end(
    make, autojump_clock
):
    *words, done = await events_of(make("a<E", "N", end(), stops=("<END>",)))
    assert "".join(getattr(e, "text", getattr(e, "delta", "")) for e in words) == "a<EN"
    assert done.stop_reason in ("end", "end_turn")
    assert done.usage.cached_tokens == 1


async def test_a_stop_string_may_turn_up_in_the_text_held_back(autojump_clock):
    stream = block_stream("xab", end(), stops=("ab", "abc"))
    assert await events_of(stream) == [
        Text("x"),
        DoneV2(stop_reason="stop_sequence", usage=USAGE, stop_sequence="ab"),
    ]
    assert await events_of(text_stream("xab", end(), stops=("ab", "abc"))) == [
        Token("x"),
        Done(stop_reason="end", usage=Usage(3, 2, 1)),
    ]


async def test_half_a_character_at_the_end_is_no_part_of_a_stop_string(autojump_clock):
    *words, done = await events_of(block_stream(b"a\xc3", end(), stops=("a\ufffd",)))
    assert (words, done.stop_sequence) == ([], "a\ufffd")


async def test_a_stop_string_in_a_thought_or_a_call_ends_nothing(autojump_clock):
    stream = block_stream("<t>a1</t>", CALL, "b1", "c", stops=("1",))
    *events, done = await events_of(stream)
    assert events == [Thinking("a1"), USE, Text("b")]
    assert (done.stop_reason, done.stop_sequence) == ("tool_use", "1")
    first, done = await events_of(text_stream("<t>a1</t>", stops=("1",)))
    assert (first, done.stop_reason) == (Token("<t>a"), "end")


async def test_a_stop_string_is_not_found_in_markers(autojump_clock):
    stream = block_stream("<t>a</t>", "b<t", ">c</t>d", end(), stops=("<", "t>"))
    *events, _ = await events_of(stream)
    assert events == [Thinking("a"), Text("b"), Thinking("c"), Text("d")]


@pytest.mark.parametrize("between", ["<t>hm</t>", CALL])
async def test_a_stop_string_does_not_reach_over_a_thought_or_a_call(
    between, autojump_clock
):
    stream = block_stream("xE", between, "ND", "y", end(), stops=("END",))
    *events, done = await events_of(stream)
    first, held, _, *rest = events
    assert (first, held, merge_deltas(rest)) == (Text("x"), Text("E"), [Text("NDy")])
    assert done.stop_sequence is None


async def test_a_stop_string_reaches_over_markers_with_nothing_between(autojump_clock):
    stream = block_stream("xE", "<t></t>", "ND", "y", end(), stops=("END",))
    *events, done = await events_of(stream)
    assert (events, done.stop_sequence) == ([Text("x")], "END")


async def test_a_thought_settles_which_stop_string_it_was(autojump_clock):
    stream = block_stream("xab", "<t>hm", stops=("ab", "abc"))
    *events, done = await events_of(stream)
    assert (events, done.stop_sequence) == ([Text("x")], "ab")
    stream = block_stream("xabc", "<t>hm", stops=("abcd", "bc"))
    *events, done = await events_of(stream)
    assert (merge_deltas(events), done.stop_sequence) == ([Text("xa")], "bc")


@pytest.mark.parametrize("split", [False, True])
async def test_after_a_stop_string_nothing_counts(split, autojump_clock):
    said = "xEND<t>hm</t><c>no</c>" + CALL
    pieces = list(said) if split else [said]
    *events, done = await events_of(block_stream(*pieces, stops=("END",)))
    assert merge_deltas(events) == [Text("x")]
    assert (done.stop_reason, done.warnings) == ("stop_sequence", ())


async def test_a_stop_string_ends_a_call_that_is_none(autojump_clock):
    stream = block_stream("<c>no", " END", "</c>", "x", end(), stops=("END",))
    *events, done = await events_of(stream)
    assert events == [Text("<c>no ")]
    assert done.warnings == (MalformedToolCall("<c>no END</c>"),)
    assert done.stop_sequence == "END"


# --- structure --------------------------------------------------------------------------


@pytest.mark.parametrize(("tools", "calls"), [((TOOL,), True), ((), False)])
async def test_a_structure_may_begin_like_a_call_where_there_is_no_tool(
    tools, calls, autojump_clock
):
    turns = [Turn("assistant", "", (CALLED,))]
    stream = block_stream(CALL, end(), tools=tools, structure=SCHEMA, turns=turns)
    *events, _ = await events_of(stream)
    assert events == [USE if calls else Text(CALL)]


@each_case("make", [text_stream, block_stream])
@each_case("complete", [False, True])
@each_case("fields", [{"structure": SCHEMA}, {"tool_choice": REQUIRED}])
async def test_whether_a_structure_is_closed_is_told(
    make, complete, fields, autojump_clock
):
    ended = end(stop_reason="length")
    last = msgspec.structs.replace(ended, structure_complete=complete)
    *_, done = await events_of(make("a", last, **fields))
    assert done.structure_complete is complete


NAMED = ToolChoice("named", "f")
OTHER = msgspec.structs.replace(TOOL, name="g")
OTHER_CALL = CALL.replace("f", "g")


@each_case(
    ("said", "fields", "unmet"),
    [
        ("a", {"tool_choice": REQUIRED}, "tool_choice: the answer ended without"),
        (CALL, {"tool_choice": REQUIRED}, ""),
        (OTHER_CALL, {"tool_choice": REQUIRED}, "tool_choice: the answer calls a tool"),
        ("", {"tool_choice": NAMED}, "tool_choice: the answer ended without"),
        (CALL, {"tool_choice": NAMED, "tools": (TOOL, OTHER)}, ""),
        (
            CALL + OTHER_CALL,
            {"tool_choice": NAMED, "tools": (TOOL, OTHER)},
            "tool_choice: the answer calls another tool",
        ),
        ("a", {"structure": SCHEMA}, "response_format.schema: the answer ended"),
        (CALL, {"structure": SCHEMA}, ""),
        ("a", {"structure": SCHEMA, "stops": ("a",)}, "cut"),
        ("a", {"tool_choice": REQUIRED, "stops": ("a",)}, "cut"),
        ("<c>{</c>", {"tool_choice": REQUIRED}, "cut"),
    ],
)
async def test_an_answer_without_what_was_demanded_fails_after_what_came(
    said, fields, unmet, autojump_clock
):
    last = msgspec.structs.replace(end(), structure_complete=False)
    stream = block_stream(said, last, **fields)
    events: list[Any] = []
    failure = ""
    try:
        async for batch in stream:
            events += batch
    except InvalidRequestError as error:
        failure = str(error)
    if unmet in ("", "cut"):
        assert (failure, events[-1].structure_complete) == ("", not unmet)
        return
    assert failure.startswith(unmet)
    assert not [each for each in events if isinstance(each, DoneV2)]
    assert bool(events) == bool(said)


@each_case("make", [text_stream, block_stream])
@each_case(
    "fields",
    [
        {},
        {"structure": SCHEMA, "max_tokens": 0},
        {"structure": SCHEMA, "prefill_only": True},
        {"tool_choice": REQUIRED, "prefill_only": True},
    ],
)
async def test_nothing_is_told_of_a_structure_where_none_was_to_be_written(
    make, fields, autojump_clock
):
    last = msgspec.structs.replace(end(), structure_complete=False)
    *_, done = await events_of(make(last, **fields))
    assert done.structure_complete is None


@each_case("make", [text_stream, block_stream])
@each_case(
    ("fields", "complete"),
    [({}, None), ({"structure": SCHEMA}, False), ({"tool_choice": REQUIRED}, False)],
)
async def test_no_structure_is_known_to_be_closed_where_a_stop_string_cut_it(
    make, fields, complete, autojump_clock
):
    *_, done = await events_of(make("{END}", stops=("END",), **fields))
    assert done.structure_complete is complete
    was_complete = None if complete is None else True
    last = msgspec.structs.replace(end(), structure_complete=was_complete)
    *_, done = await events_of(make("ab", last, stops=("ab", "abc"), **fields))
    assert done.structure_complete is complete


async def test_a_call_that_cannot_be_read_is_not_what_was_asked_for(autojump_clock):
    last = msgspec.structs.replace(end(), structure_complete=True)
    for said, complete in ((CALL, True), ("<c>f{</c>", False)):
        *_, done = await events_of(block_stream(said, last, tool_choice=REQUIRED))
        assert done.structure_complete is complete


# --- blocks -----------------------------------------------------------------------------


async def test_thoughts_and_calls_are_told_apart_from_text(autojump_clock):
    pieces: list[JobMessage | str] = [
        "<t>h",
        "m</",
        "t>Hel",
        "lo<c",
        CALL[2:],
        "!",
        end(),
    ]
    events = await events_of(block_stream(*pieces))
    assert events == [
        Thinking("h"),
        Thinking("m"),
        Text("Hel"),
        Text("lo"),
        USE,
        Text("!"),
        DoneV2(stop_reason="tool_use", usage=USAGE),
    ]


async def test_a_stream_may_begin_in_a_thought(autojump_clock):
    stream = block_stream("hm</t>", "Hello", end(), open_thought="<t>")
    *events, _ = await events_of(stream)
    assert events == [Thinking("hm"), Text("Hello")]


@each_case(
    ("fields", "calls"),
    [
        ({}, True),
        ({"tool_choice": REQUIRED}, True),
        ({"tool_choice": ToolChoice("none")}, False),
        ({"tools": ()}, False),
        ({"tools": (), "turns": [Turn("assistant", "", (CALLED,))]}, True),
        (
            {
                "turns": [Turn("assistant", "", (CALLED,))],
                "tool_choice": ToolChoice("none"),
            },
            False,
        ),
    ],
)
async def test_calls_are_calls_where_there_are_or_were_tools(
    fields, calls, autojump_clock
):
    stream = block_stream("<t>hm</t>", CALL, end(), **fields)
    *events, done = await events_of(stream)
    assert merge_deltas(events) == [Thinking("hm"), USE if calls else Text(CALL)]
    assert done.stop_reason == ("tool_use" if calls else "end_turn")


async def test_a_tools_own_schema_is_there_when_its_call_is_read(autojump_clock):
    seen = []

    def read(text, tools):
        seen.append(tools)
        return [ParsedCall(text, {})]

    region = Region(holds="calls", begins=("<",), ends=(">",), read=read)
    dialect = replace(MADE_UP, regions=(region,))
    stream = BlockStream(results_of("<f>", end()), prepared(), dialect)
    assert len(await events_of(stream)) == 2
    assert seen == [(TOOL,)]


@pytest.mark.parametrize("why", ["end", "length"])
async def test_a_call_without_its_end_is_a_call_unless_it_was_cut_off(
    why, autojump_clock
):
    written = CALL.removesuffix("</c>")
    *events, done = await events_of(block_stream(written, end(stop_reason=why)))
    assert events == ([USE] if why == "end" else [Text(written)])
    assert done.stop_reason == ("tool_use" if why == "end" else "max_tokens")
    assert bool(done.warnings) == (why == "length")


async def test_v1_sends_markers_as_they_are(autojump_clock):
    *words, _ = await events_of(text_stream("<t>hm</t>", CALL, end()))
    assert words == [Token("<t>hm</t>"), Token(CALL)]


@pytest.mark.parametrize(
    "last",
    [
        end(stop_reason="length"),
        end(stop_token_id=7),
        "STOP",
    ],
)
async def test_a_call_is_the_reason_whatever_came_after_it(last, autojump_clock):
    *_, done = await events_of(block_stream(CALL, "x", last, stops=("STOP",)))
    assert done.stop_reason == "tool_use"
    assert done.stop_token_id == (7 if last == end(stop_token_id=7) else None)
    assert done.stop_sequence == ("STOP" if last == "STOP" else None)


async def test_a_call_that_is_none_is_a_warning_as_soon_as_it_is_text(autojump_clock):
    stream = block_stream("a", "<c>{</c>", "b")
    assert not stream.warnings
    assert Text("<c>{</c>") in await anext(aiter(stream))
    assert [*stream.warnings] == [MalformedToolCall("<c>{</c>")]


@pytest.mark.parametrize("cut", ['<c>f{"a"', "<", ""])
async def test_a_forced_call_cut_by_max_tokens_is_no_text(cut, autojump_clock):
    last = msgspec.structs.replace(end(stop_reason="length"), structure_complete=False)
    stream = block_stream(CALL, cut, last, tool_choice=REQUIRED)
    *events, done = await events_of(stream)
    assert events == [USE]
    assert done.stop_reason == "max_tokens"
    assert done.structure_complete is False
    assert [each.raw for each in done.warnings] == ([cut] if len(cut) > 1 else [])


LLAMA3_CALL = '{"name": "f", "parameters": {"a": 1}}'
JSON_CALL = '{"name": "f", "arguments": {"a": 1}}'


class Several(NamedTuple):
    """How a family writes several calls in one region without an end."""

    dialect: Dialect
    begin: str
    call: str
    between: str = ""
    end: str = ""


SEVERAL = [
    Several(LLAMA3, "", LLAMA3_CALL, "; "),
    Several(LLAMA3, "<|python_tag|>", LLAMA3_CALL, "; "),
    Several(GRANITE, "<|tool_call|>[", JSON_CALL, ", ", "]"),
    Several(MISTRAL, "[TOOL_CALLS][", JSON_CALL, ", ", "]"),
    Several(MISTRAL, "", '[TOOL_CALLS]f[ARGS]{"a": 1}'),
]
EARLY = [{"stop_reason": "length"}, {"stop_token_id": 7}]


def uses(n_calls):
    return [
        msgspec.structs.replace(USE, tool_call_id=f"tc-{number}")
        for number in range(n_calls)
    ]


async def forced(dialect, text, *, is_complete=False, **last):
    """Give the events of forced calls, and their end."""
    ended = msgspec.structs.replace(end(**last), structure_complete=is_complete)
    stream = BlockStream(
        results_of(text, ended), prepared(tool_choice=REQUIRED), dialect
    )
    *events, done = await events_of(stream)
    return events, done


@each_case("last", EARLY)
@each_case("n_calls", [1, 2])
@each_case("several", SEVERAL)
async def test_forced_calls_before_the_one_that_is_cut_are_sent(
    several, n_calls, last, autojump_clock
):
    for n_chars in range(len(several.call)):
        cut = several.call[:n_chars]
        calls = [several.call] * n_calls
        text = several.begin + several.between.join([*calls, cut])
        events, done = await forced(several.dialect, text, **last)
        assert events == uses(n_calls)
        assert [each.raw for each in done.warnings] == ([cut] if cut else [])
        assert done.structure_complete is False
        assert done.stop_reason == (
            "max_tokens" if "stop_reason" in last else "tool_use"
        )


@each_case("is_complete", [True, False])
@each_case("several", SEVERAL)
async def test_forced_calls_that_are_not_cut_are_sent_without_a_warning(
    several, is_complete, autojump_clock
):
    text = several.begin + several.between.join([several.call] * 2) + several.end
    events, done = await forced(
        several.dialect, text, is_complete=is_complete, stop_reason="length"
    )
    assert events == uses(2)
    assert done.warnings == ()


@each_case("several", SEVERAL)
async def test_nothing_of_forced_calls_is_text_before_they_end(several, autojump_clock):
    text = several.begin + several.between.join([several.call] * 2)
    answers = results_of(*text)
    stream = BlockStream(answers, prepared(tool_choice=REQUIRED), several.dialect)
    with trio.move_on_after(1):  # as where the request is cancelled
        async for events in stream:
            pytest.fail(f"{events} at {text[: stream.n_tokens]}")
    assert stream.n_tokens == len(text)
    assert not stream.warnings


@each_case("last", EARLY)
@each_case("cut", [LLAMA3_CALL[:-1], '{"name": "g'])
async def test_the_first_of_forced_calls_that_is_cut_is_a_warning(
    cut, last, autojump_clock
):
    events, done = await forced(LLAMA3, cut, **last)
    assert events == []
    assert done.warnings == (MalformedToolCall(cut),)


async def test_a_call_that_the_model_chose_and_did_not_finish_is_text_with_those_before(
    autojump_clock,
):
    text = f"{LLAMA3_CALL}; {LLAMA3_CALL[:-1]}"
    answers = results_of(text, end(stop_reason="length"))
    *events, done = await events_of(BlockStream(answers, prepared(), LLAMA3))
    assert events == [Text(text)]
    assert done.warnings == (MalformedToolCall(text),)


async def test_forced_calls_that_are_complete_at_max_tokens_are_the_reason(
    autojump_clock,
):
    last = msgspec.structs.replace(end(stop_reason="length"), structure_complete=True)
    *events, done = await events_of(block_stream(CALL, last, tool_choice=REQUIRED))
    assert events == [USE]
    assert (done.stop_reason, done.structure_complete) == ("tool_use", True)


async def test_v1_warns_of_nothing(autojump_clock):
    stream = text_stream("<c>{</c>", end())
    assert Token("<c>{</c>") in await events_of(stream)
    assert not stream.warnings


async def test_a_call_that_is_cut_off_is_text_with_a_warning(autojump_clock):
    events = await events_of(block_stream("a<c>{", end(stop_reason="length")))
    assert events == [
        Text("a"),
        Text("<c>{"),
        DoneV2(
            stop_reason="max_tokens",
            usage=USAGE,
            warnings=(MalformedToolCall("<c>{"),),
        ),
    ]


async def test_a_stop_string_is_the_reason_even_with_the_last_token(autojump_clock):
    last = end(stop_reason="length")
    *_, done = await events_of(text_stream("xab", last, stops=("ab", "abc")))
    assert done.stop_reason == "end"
    *_, done = await events_of(block_stream("xab", last, stops=("ab", "abc")))
    assert done.stop_reason == "stop_sequence"


async def test_the_jobs_own_stop_token_is_named(autojump_clock):
    *_, done = await events_of(block_stream("a", end(stop_token_id=0)))
    assert (done.stop_reason, done.stop_token_id) == ("stop_sequence", 0)
    *_, done = await events_of(text_stream("a", end(stop_token_id=0)))
    assert done.stop_reason == "end"


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same_blocks(data):
    answer = f"é<t>h€m</t>Hello {CALL} and{CALL}<c>no</c> END and more"
    pieces = data.draw(chunked(answer.encode()))

    async def main():
        events = await events_of(block_stream(*pieces, end(), stops=("END", "NDx")))
        kinds = [type(each) for each in events if isinstance(each, ToolUse | DoneV2)]
        assert kinds == [ToolUse, ToolUse, DoneV2]
        text = "".join(each.delta for each in events if isinstance(each, Text))
        assert text == "éHello  and<c>no</c> "
        thought = "".join(each.delta for each in events if isinstance(each, Thinking))
        assert thought == "h€m"
        assert events[-1].warnings == (MalformedToolCall("<c>no</c>"),)
        assert events[-1].stop_sequence == "END"

    trio.run(main)


# --- log probabilities ------------------------------------------------------------------


async def test_a_tokens_log_probability_goes_with_its_text(autojump_clock):
    stream = block_stream(logprob("a"), "a", logprob("b"), "b", end())
    assert (await events_of(stream))[:2] == [
        Text("a", (logprob("a"),)),
        Text("b", (logprob("b"),)),
    ]


async def test_text_that_was_held_back_has_all_of_its_tokens(autojump_clock):
    said = (logprob("<E"), "<E", logprob("N"), "N", logprob("x"), "x")
    text, _ = await events_of(block_stream(*said, end(), stops=("<END>",)))
    assert text == Text("<ENx", (logprob("<E"), logprob("N"), logprob("x")))


async def test_the_tokens_of_a_stop_string_are_in_no_frame(autojump_clock):
    said = (logprob("a"), "a", logprob("<EN"), "<EN", logprob("D>"), "D>")
    text, done = await events_of(block_stream(*said, end(), stops=("<END>",)))
    assert text == Text("a", (logprob("a"),))
    assert done.stop_sequence == "<END>"


async def test_text_held_back_before_a_thought_has_its_tokens(autojump_clock):
    said = ["a", "E", "<t>", "hm", "</t>", "b"]
    pieces = [each for piece in said for each in (logprob(piece), piece)]
    *events, _ = await events_of(block_stream(*pieces, end(), stops=("END",)))
    assert events == [
        Text("a", (logprob("a"),)),
        Text("E", (logprob("E"),)),
        Thinking("hm"),
        Text("b", (logprob("b"),)),
    ]


async def test_a_token_of_text_and_something_else_goes_with_the_text(autojump_clock):
    said = ["a<t>", "h", "m</t>b", "c<c>", "f{}", "</c>d", "e"]
    pieces = [each for piece in said for each in (logprob(piece), piece)]
    *events, _ = await events_of(block_stream(*pieces, end()))
    assert events == [
        Text("a", (logprob("a<t>"),)),
        Thinking("h"),
        Thinking("m"),
        Text("b", (logprob("m</t>b"),)),
        Text("c", (logprob("c<c>"),)),
        ToolUse(tool_call_id="tc-0", name="f", input={}),
        Text("d", (logprob("</c>d"),)),
        Text("e", (logprob("e"),)),
    ]


async def test_the_tokens_of_thoughts_and_calls_are_in_no_text_frame(autojump_clock):
    pieces = ["<t>", "hm", "</t>", "a", CALL, "b"]
    said = [each for piece in pieces for each in (logprob(piece), piece)]
    *events, _ = await events_of(block_stream(*said, end()))
    assert events == [
        Thinking("hm"),
        Text("a", (logprob("a"),)),
        USE,
        Text("b", (logprob("b"),)),
    ]


@each_case(
    ("said", "stops", "told"),
    [
        (["a", "\n", "<", "c>f{}</c>"], (), [("a", "a"), ("\n", "\n")]),
        (["<", "b", CALL], (), [("<b", "<|b")]),
        (
            ["a", "<c", ">n", "o</c", ">b"],
            (),
            [("a", "a"), ("<c>no</c>b", "<c|>n|o</c|>b")],
        ),
        (["<t>h", "m", "</t", ">", "b"], (), [("b", "b")]),
        (["<", "x", "y"], ("xyz", "yz"), [("<", "<"), ("xy", "x|y")]),
        (["<", "aE", "ND"], ("END",), [("<a", "<|aE")]),
        (["<", "E", "ND"], ("END",), [("<", "<")]),
    ],
)
async def test_text_has_the_tokens_that_it_is_made_of(
    said, stops, told, autojump_clock
):
    pieces = [each for piece in said for each in (logprob(piece), piece)]
    events = await events_of(block_stream(*pieces, end(), stops=stops))
    assert [
        (each.delta, "|".join(entry.token for entry in each.logprobs))
        for each in events
        if isinstance(each, Text)
    ] == told


async def test_half_a_character_is_told_with_the_other_half(autojump_clock):
    pieces = [*"ab", "<t>c</t>", b"\xc3", b"\xa9", b"\xf0"]
    said = [each for n, piece in enumerate(pieces) for each in (logprob(str(n)), piece)]
    *events, _ = await events_of(block_stream(*said, end()))
    told = [
        [int(each.token) for each in getattr(one, "logprobs", ())] for one in events
    ]
    assert told == [[0], [1], [], [3, 4], [5]]


async def test_v1_has_no_log_probabilities(autojump_clock):
    assert (await events_of(text_stream(logprob("a"), "a", end())))[0] == Token("a")


# --- failures ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_a_death_in_mid_stream_comes_after_earlier_events(make, autojump_clock):
    stream = make("a", "b")
    stream._results.fail(WorkerDiedError("gone"))
    events: list[Any] = []
    with pytest.raises(WorkerDiedError, match="gone"):
        async for batch in stream:
            events += batch
    assert len(events) == 2


@pytest.mark.parametrize("make", [text_stream, block_stream])
async def test_a_death_after_the_end_is_ignored(make, autojump_clock):
    stream = make("a", end())
    stream._results.fail(WorkerDiedError("gone"))
    assert len(await events_of(stream)) == 2


@each_case("make", [text_stream, block_stream])
@each_case(
    ("by_request", "error"), [(False, InternalError), (True, InvalidRequestError)]
)
async def test_a_run_that_failed_is_the_requests_doing_or_the_backends(
    make, by_request, error, autojump_clock
):
    failed = Failed(ticket=1, reason="the grammar is tired", by_request=by_request)
    with pytest.raises(error, match="the grammar is tired"):
        await events_of(make(b"some", failed))


@each_case("make", [text_stream, block_stream])
@each_case(
    "wrong",
    [
        PromptReady(ticket=1, prompt_tokens=1),
        Embedded(ticket=1, embeddings=b"[]", dimensions=1),
        Scored(ticket=1, scores=[]),
    ],
)
async def test_an_answer_of_another_kind_is_a_failure(make, wrong, autojump_clock):
    with pytest.raises(InternalError):
        await events_of(make(wrong))


def with_ids(pieces):
    results: list[JobMessage] = []
    for token, piece in enumerate(pieces):
        results += [TokenId(token), piece.encode() if isinstance(piece, str) else piece]
    return results


def ids_of(events):
    return [each.token_ids for each in events]


async def test_the_id_of_a_token_comes_with_the_block_that_it_begins_in(autojump_clock):
    pieces = [
        "<t>",
        "a",
        "b</t>c",
        "d\xc3".encode("latin-1"),
        b"\xa9",
        CALL,
        "",
        "e",
        "<",
    ]
    end = msgspec.structs.replace(ended(1, 9), end_token_id=99)
    stream = block_stream(*with_ids(pieces), end, wants_token_ids=True)
    events = await events_of(stream)
    assert [(type(each).__name__, each.token_ids) for each in events[:-2]] == [
        *[("Thinking", (0, 1)), ("Thinking", (2,)), ("Text", ())],
        *[("Text", (3,)), ("Text", (4,)), ("ToolUse", (5,)), ("Text", (6, 7))],
    ]
    assert events[-2] == Text("<", token_ids=(8,))
    assert (events[-1].token_ids, events[-1].end_token_id) == ((), 99)
    assert all(each == () for each in ids_of(await events_of(block_stream("a", end))))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<t>", "</t>", "ab", CALL, "<c>no</c>", "é", "STOP"])
    ).flatmap(lambda parts: chunked("".join(parts).encode())),
    st.booleans(),
)
def test_every_id_is_told_once_and_in_order(pieces, stops):
    async def check() -> None:
        stream = block_stream(
            *with_ids(pieces),
            ended(1, len(pieces)),
            wants_token_ids=True,
            stops=("STOP",) if stops else (),
        )
        events = await events_of(stream)
        told = [token for each in events for token in each.token_ids]
        assert told == [*range(stream.n_tokens)]

    trio.run(check)


async def test_what_no_event_has_of_a_cancelled_answer_is_known(autojump_clock):
    stream = block_stream(
        *with_ids(["a", "STO"]), stops=("STOP",), wants_token_ids=True
    )
    assert await anext(aiter(stream)) == [Text("a", token_ids=(0,))]
    assert [*stream.unsent_token_ids] == [1]
