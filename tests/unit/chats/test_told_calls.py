import msgspec

from inferd.chats.records import KeptMessage, MessageDetails, StoredCall
from inferd.chats.told_calls import told_calls
from inferd.wire.blocks import Message, TextBlock, ToolResultBlock, ToolUseBlock


def test_an_answer_with_calls_is_told_in_its_turns_and_as_text_without_tools():
    calls = [
        StoredCall("call1", "maths__add", {"a": 1}, 4, 0, "done", "sum 1"),
        StoredCall("call2", "maths__add", {"a": 1}, 4, 1, "waiting"),
    ]
    message = KeptMessage(
        id="a",
        chat_id="c",
        parent_id="p",
        role="assistant",
        state="complete",
        created_us=0,
        text="One.Two.",
        details=MessageDetails(calls=calls),
    )
    used = [
        ToolUseBlock(f"call{n}", "maths__add", msgspec.Raw(b'{"a":1}')) for n in (1, 2)
    ]
    told = list(told_calls(message, as_calls=True))
    assert told == [
        Message("assistant", [TextBlock("One."), used[0]]),
        Message("user", [ToolResultBlock("call1", [TextBlock("sum 1")])]),
        Message("assistant", [used[1]]),
        Message("user", [ToolResultBlock("call2", [TextBlock("[not called]")])]),
        Message("assistant", [TextBlock("Two.")]),
    ]
    texts = [
        part for turn in told_calls(message, as_calls=False) for part in turn.content
    ]
    assert TextBlock('[maths__add {"a":1}: sum 1]') in texts
    assert {each.role for each in told_calls(message, as_calls=False)} == {"assistant"}
