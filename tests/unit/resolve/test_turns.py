from collections import Counter

import pytest
from hypothesis import given
from msgspec import Raw

from inferd.backend.job import PastCall, Turn
from inferd.errors import InvalidRequestError
from inferd.resolve.turns import flat_text, turns_of
from inferd.wire.blocks import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.cases import each_case
from tests.unit.strategies import BLOCKS_REQUESTS


def use(call_id: str, name: str = "f", arguments: bytes = b"{}") -> ToolUseBlock:
    return ToolUseBlock(call_id, name, Raw(arguments))


def result(*blocks: Block, call_id: str = "tc-0") -> ToolResultBlock:
    return ToolResultBlock(call_id, list(blocks))


def call(call_id: str, name: str = "f", arguments: str = "{}") -> PastCall:
    return PastCall(id=call_id, name=name, arguments=arguments)


@each_case(
    ("blocks", "text"),
    [
        ([], ""),
        ([TextBlock("a"), TextBlock(""), TextBlock("b\n"), TextBlock("c")], "ab\nc"),
        ([TextBlock("a"), ImageBlock("i"), use("tc-0"), TextBlock("b")], "ab"),
        (
            [
                TextBlock("a"),
                result(TextBlock("b"), result(TextBlock("c")), AudioBlock("s")),
                TextBlock("d"),
            ],
            "abcd",
        ),
    ],
)
def test_the_text_of_blocks_is_theirs_in_order(blocks, text):
    assert flat_text(blocks) == text


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_text_alone_is_one_turn_of_its_role(role):
    blocks: list[Block] = [TextBlock("a"), ImageBlock("i"), TextBlock("b")]
    assert turns_of([Message(role, blocks)]) == [Turn(role, "ab")]
    assert turns_of([Message(role, [TextBlock("")])]) == [Turn(role, "")]


def test_where_media_stand_the_text_has_the_marker():
    blocks: list[Block] = [TextBlock("a"), ImageBlock("i"), TextBlock("b")]
    inner = result(AudioBlock("s"), result(ImageBlock("i")), TextBlock("c"))
    turns = turns_of([Message("user", [*blocks, inner])], "<#>")
    assert [turn.text for turn in turns] == ["a<#>b", "<#><#>c"]


def test_media_at_the_side_of_calls_are_marked_too():
    blocks: list[Block] = [ImageBlock("i"), use("tc-0"), ImageBlock("j")]
    [turn] = turns_of([Message("assistant", blocks)], "<#>")
    assert turn.text == "<#>\n\n<#>"


def test_what_the_assistant_says_comes_before_its_calls():
    blocks: list[Block] = [
        TextBlock("a"),
        TextBlock("b"),
        use("tc-0", "f", b'{"x": 1.50, "n": 12345678901234567890123}'),
        TextBlock(""),
        use("tc-1", "g"),
        TextBlock("c"),
    ]
    assert turns_of([Message("assistant", blocks)]) == [
        Turn(
            "assistant",
            "ab\n\nc",
            calls=(
                call("tc-0", "f", '{"x": 1.50, "n": 12345678901234567890123}'),
                call("tc-1", "g"),
            ),
        )
    ]


def test_results_are_turns_of_the_tools_that_were_called():
    turns = turns_of(
        [
            Message("assistant", [use("tc-0", "f"), use("tc-1", "g")]),
            Message(
                "user",
                [
                    TextBlock("here"),
                    result(TextBlock("12"), call_id="tc-1"),
                    result(TextBlock("9"), TextBlock(" °C"), call_id="tc-0"),
                    TextBlock("and"),
                    TextBlock(" now?"),
                ],
            ),
        ]
    )
    assert turns[1:] == [
        Turn("user", "here"),
        Turn("tool", "12", call_id="tc-1", name="g"),
        Turn("tool", "9 °C", call_id="tc-0", name="f"),
        Turn("user", "and now?"),
    ]


def test_a_result_of_a_call_that_is_not_there_has_no_name():
    messages = [
        Message("user", [result(TextBlock("9"), call_id="tc-0")]),
        Message("assistant", [use("tc-0", "f")]),
    ]
    assert turns_of(messages)[0] == Turn("tool", "9", call_id="tc-0")


def test_what_the_assistant_says_after_a_result_comes_after_it():
    blocks: list[Block] = [
        use("tc-0"),
        TextBlock("a"),
        result(TextBlock("9")),
        TextBlock("b"),
        use("tc-1"),
    ]
    assert turns_of([Message("assistant", blocks)]) == [
        Turn("assistant", "a", calls=(call("tc-0"),)),
        Turn("tool", "9", call_id="tc-0", name="f"),
        Turn("assistant", "b", calls=(call("tc-1"),)),
    ]


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_call_in_any_message_is_the_assistants_and_nothing_else_there_is(role):
    blocks: list[Block] = [
        TextBlock("a"),
        use("tc-0"),
        use("tc-1", "g"),
        result(TextBlock("9")),
        TextBlock("b"),
        use("tc-0", "h"),
    ]
    assert turns_of([Message(role, blocks)]) == [
        Turn(role, "a"),
        Turn("assistant", "", calls=(call("tc-0"), call("tc-1", "g"))),
        Turn("tool", "9", call_id="tc-0", name="f"),
        Turn(role, "b"),
        Turn("assistant", "", calls=(call("tc-0", "h"),)),
    ]


@given(BLOCKS_REQUESTS)
def test_no_text_no_call_and_no_result_is_lost(request_):
    blocks = [block for each in request_.messages for block in each.content]
    turns = turns_of(request_.messages)
    said = "".join(turn.text for turn in turns)
    assert Counter(said.replace("\n", "")) == Counter(
        flat_text(blocks).replace("\n", "")
    )
    called = [each.id for turn in turns for each in turn.calls]
    assert called == [
        each.tool_call_id for each in blocks if isinstance(each, ToolUseBlock)
    ]
    answered = [turn.call_id for turn in turns if turn.role == "tool"]
    assert answered == [
        each.tool_call_id for each in blocks if isinstance(each, ToolResultBlock)
    ]


@given(BLOCKS_REQUESTS)
def test_nothing_that_others_than_the_assistant_say_changes_its_place(request_):
    for message in request_.messages:
        turns = turns_of([message])
        if message.role != "assistant":
            assert "".join(turn.text for turn in turns) == flat_text(message.content)


def test_an_input_that_is_no_text_is_refused():
    message = Message("assistant", [use("tc-7", arguments=b'"\xff"')])
    with pytest.raises(InvalidRequestError, match='input of call "tc-7" is not UTF-8'):
        turns_of([message])
