from collections import Counter

import pytest
from hypothesis import given

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.rendering import (
    arguments_of,
    declaration,
    parse_json,
    split_parallel_calls,
    to_json,
)
from tests.unit.dialects.conversations import CONVERSATIONS

CALLS = tuple(
    PastCall(id=f"tc-{at}", name="f", arguments=f'{{"n":{at}}}') for at in range(3)
)


def results(*numbers):
    return [Turn("tool", f"{each}", call_id=f"tc-{each}") for each in numbers]


def test_json_is_on_one_line_and_unescaped():
    assert to_json({"a": "ü/<", "b": [1, None]}) == '{"a": "ü/<", "b": [1, null]}'
    assert to_json({"a": 1}, indent=4) == '{\n    "a": 1\n}'


def test_half_a_surrogate_pair_does_not_get_into_a_prompt():
    assert to_json(parse_json('"a\\ud800"')) == '"a?"'


def test_arguments_are_written_anew_and_in_their_order():
    call = PastCall(id="tc-0", name="f", arguments='{"b":1,"a":"\\u00fc"}')
    assert arguments_of(call) == '{"b": 1, "a": "ü"}'


def test_arguments_that_are_no_json_are_a_text():
    for text in ("no JSON", "[" * 99999, "9" * 9999):
        call = PastCall(id="tc-0", name="f", arguments=text)
        assert arguments_of(call) == f'"{text}"'


def test_a_tool_is_declared_with_its_schema():
    tool = ToolSpec(name="f", description="Does it.", input_schema='{"type": "object"}')
    function = {
        "name": "f",
        "description": "Does it.",
        "parameters": {"type": "object"},
    }
    assert declaration(tool) == {"type": "function", "function": function}


def test_each_call_comes_with_its_results():
    turns = [Turn("user", "Hi."), Turn("assistant", "So.", CALLS), *results(2, 0, 1, 7)]
    assert [*split_parallel_calls(turns)] == [
        Turn("user", "Hi."),
        Turn("assistant", "So.", CALLS[:1]),
        *results(0),
        Turn("assistant", "", CALLS[1:2]),
        *results(1),
        Turn("assistant", "", CALLS[2:]),
        *results(2, 7),
    ]


def test_results_after_another_turn_stay_there():
    turns = [Turn("assistant", "", CALLS[:2]), Turn("user", "Hm."), *results(0, 1)]
    assert [*split_parallel_calls(turns)][2:] == turns[1:]


@pytest.mark.slow
@given(CONVERSATIONS)
def test_nothing_is_lost_and_no_turn_has_two_calls(turns):
    split = [*split_parallel_calls(turns)]
    assert all(len(turn.calls) <= 1 for turn in split)
    assert [call for turn in split for call in turn.calls] == [
        call for turn in turns for call in turn.calls
    ]
    words = Counter(turn.text for turn in split if turn.text)
    assert words == Counter(turn.text for turn in turns if turn.text)
