from msgspec.structs import replace

from inferd.chats.records import KeptChat, MessageDetails
from inferd.cli.chat.conversation import (
    Conversation,
    broken_off,
    new_message,
    with_part,
)

CHAT = KeptChat(id="c", owner="", created_us=1, modified_us=1)


def conversation() -> Conversation:
    """Two prompts with two answers; the first has a third branch."""
    made = Conversation(CHAT)
    for name, parent in (("p1", None), ("a1", "p1"), ("p2", "a1"), ("b1", "p1")):
        message = new_message(
            made,
            message_id=name,
            now_us=1,
            parent_id=parent,
            is_prompt=name.startswith("p"),
        )
        made.put(message)
    return made


def test_a_conversation_knows_its_branches():
    made = conversation()
    made.go_to("p2", 9)
    assert [each.id for each in made.branch] == ["p1", "a1", "p2"]
    assert [each.id for each in made.tails()] == ["p2", "b1"]
    assert made.parent_of_next == "a1"
    assert made.last_prompt is not None
    assert made.last_prompt.id == "p2"
    assert made.chat.modified_us == 9
    made.go_to(None, 9)
    assert [*made.branch] == []
    assert made.parent_of_next is None


def test_an_answer_grows_and_may_be_broken_off():
    answer = replace(conversation().messages["a1"], details=MessageDetails())
    grown = with_part(with_part(answer, "a\0", ""), "b", "c")
    assert (grown.text, grown.thinking) == ("a\ufffdb", "c")
    broken = broken_off(grown, "the daemon has gone")
    assert broken.details.failure is not None
    assert broken.details.failure.message == "the daemon has gone"
    assert (broken.state, broken.text) == ("aborted_by_worker", "a\ufffdb")
