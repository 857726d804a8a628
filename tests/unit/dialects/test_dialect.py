import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock

from inferd.backend.events import DoneV2
from inferd.backend.job import Turn
from inferd.dialects.registry import DIALECTS
from inferd.engine.channel.demultiplexer import JobMessage
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.generation import BlockStream
from inferd.ipc.worker import Ended
from inferd.output.parser import merge_deltas
from inferd.wire.responses import StopReason, Usage
from tests.cases import each_case
from tests.unit.dialects.cases import FOLDER, Case, cases_of, tools_named
from tests.unit.dialects.made_up import MADE_UP
from tests.unit.strategies import chunked

FAMILIES = {**DIALECTS, MADE_UP.name: MADE_UP}
CASES = [(name, case) for name in FAMILIES for case in cases_of(name)]
PROMPTED = [each for each in CASES if each[1].prompt is not None]
ANSWERED = [each for each in CASES if each[1].raw]
SHORT_BYTES = 160


def each_of(cases: Sequence[tuple[str, Case]], shards: int = 1) -> Any:
    ids = [f"{name}: {case.name}" for name, case in cases]
    return each_case(("name", "case"), cases, ids=ids, shards=shards)


async def heard(name: str, case: Case, pieces: Sequence[bytes]) -> Any:
    """Give what a client is told of an answer that has come as a whole."""
    box = ResultQueue[JobMessage]()
    for answer in answers_of(case, pieces):
        box.put(answer)
    return await outcome(name, case, box)


async def heard_streaming(name: str, case: Case, pieces: Sequence[bytes]) -> Any:
    """Give what a client is told of an answer that is listened to as it comes."""
    box = ResultQueue[JobMessage]()

    async def speak() -> None:
        for answer in answers_of(case, pieces):
            box.put(answer)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        return await outcome(name, case, box)


def answers_of(case: Case, pieces: Sequence[bytes]) -> list[JobMessage]:
    why: StopReason = "length" if case.was_cut else "end"
    return [*pieces, Ended(ticket=1, stop_reason=why, usage=Usage(3, 2))]


async def outcome(name: str, case: Case, box: ResultQueue[JobMessage]) -> Any:
    events: list[Any] = []
    with trio.fail_after(60):
        dialect = FAMILIES[name]
        async for batch in BlockStream(box, case.prepared(dialect), dialect):
            events += batch
    *blocks, done = events
    assert isinstance(done, DoneV2)
    quoted = [warning.raw for warning in done.warnings]
    return merge_deltas(blocks), quoted, done.stop_reason, done.stop_sequence


# --- transcripts ------------------------------------------------------------------------


@each_case("name", FAMILIES)
def test_every_family_has_transcripts_of_different_names(name):
    names = [case.name for case in cases_of(name)]
    assert len(set(names)) == len(names) > 0


def test_every_transcript_is_of_a_family():
    written = {path.stem for path in FOLDER.glob("*.toml")} - {"tools"}
    assert written == set(FAMILIES)


@each_of(PROMPTED)
def test_a_prompt_is_what_the_family_knows(name, case):
    tools = tools_named(case.tools)
    assert FAMILIES[name].render(case.turns, tools, case.thinks) == case.prompt


@each_of(ANSWERED)
async def test_an_answer_is_told_apart(name, case, autojump_clock):
    blocks, quoted, *_ = await heard(name, case, [case.raw])
    assert blocks == case.blocks
    assert quoted == case.malformed


@each_of(ANSWERED, shards=4)
async def test_an_answer_is_told_apart_byte_by_byte(name, case, autojump_clock):
    raw = case.raw
    pieces = [raw[at : at + 1] for at in range(len(raw))]
    blocks, quoted, *_ = await heard_streaming(name, case, pieces)
    assert blocks == case.blocks
    assert quoted == case.malformed


@each_of([each for each in ANSWERED if len(each[1].raw) <= SHORT_BYTES], shards=8)
async def test_an_answer_may_be_split_at_any_place(name, case, autojump_clock):
    whole = await heard(name, case, [case.raw])
    for at in range(1, len(case.raw)):
        assert await heard(name, case, [case.raw[:at], case.raw[at:]]) == whole


@pytest.mark.slow
@settings(max_examples=40)
@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
def test_an_answer_may_be_split_at_any_places(name, data):
    answered = [case for family, case in ANSWERED if family == name]
    case = data.draw(st.sampled_from(answered))
    pieces = data.draw(chunked(case.raw))
    assert_split_changes_nothing(name, case, pieces)


# --- what nobody has written ------------------------------------------------------------


def fragments_of(name: str) -> st.SearchStrategy[str]:
    """Draw markers, what stands between them in transcripts, and beginnings of both."""
    markers = sorted({*FAMILIES[name].markers} - {""})
    anywhere = "|".join(map(re.escape, markers))
    answers = [case.answer for case in cases_of(name)]
    between = sorted({part for each in answers for part in re.split(anywhere, each)})
    whole = [*markers, *between, '{"name": "get_time", "arguments": {}}', "\n", "x"]
    begun = [part[:size] for part in whole for size in (1, 3, 9)]
    return st.sampled_from(markers) | st.sampled_from(whole) | st.sampled_from(begun)


@cache
def cases(name: str) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        name=st.just("made up"),
        turns=st.just([Turn("user", "Hi.")]),
        tools=st.sampled_from([[], ["get_weather", "get_time"]]),
        answer=st.lists(fragments_of(name), max_size=9).map("".join),
        opens_thought=st.booleans()
        if FAMILIES[name].thoughts
        else st.just(value=False),
        was_cut=st.booleans(),
        thinks=st.booleans(),
        is_structured=st.booleans(),
        stops=st.lists(fragments_of(name).filter(bool), max_size=1),
    )


@pytest.mark.slow
@settings(max_examples=30)
@pytest.mark.parametrize("name", FAMILIES)
@given(data=st.data())
def test_a_mixture_of_markers_may_be_split_at_any_places(name, data):
    case = data.draw(cases(name))
    assert_split_changes_nothing(name, case, data.draw(chunked(case.raw)))


def assert_split_changes_nothing(
    name: str, case: Case, pieces: Sequence[bytes]
) -> None:
    async def main() -> None:
        whole = await heard(name, case, [case.raw])
        assert await heard(name, case, pieces) == whole
        assert await heard_streaming(name, case, pieces) == whole

    trio.run(main, clock=MockClock(autojump_threshold=0))
