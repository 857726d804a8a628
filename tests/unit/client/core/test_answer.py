import pytest
from msgspec import UNSET

from inferd.client.core.answer import AnswerCollector
from inferd.client.core.conversation import chat_request, messages_of
from inferd.client.core.failures import ClientError
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, UsageV2


def test_the_ids_of_all_parts_are_those_of_the_answer():
    collector = AnswerCollector()
    frames = [
        BlockFrame(id="", block=ThinkingDelta("a"), token_ids=[1, 2]),
        BlockFrame(id="", block=TextDelta("b"), token_ids=[3]),
        BlockFrame(id="", block=TextDelta("c")),
    ]
    events = [collector.read(frame) for frame in frames]
    assert [each and each.token_ids for each in events] == [[1, 2], [3], ()]  # type: ignore[union-attr]
    done = ClientBlocksDone(
        id="",
        usage=UsageV2(5, 4),
        stop_reason="stop_sequence",
        backend="m",
        token_ids=[4],
        end_token_id=9,
        stop_token_id=9,
    )
    assert collector.read(done) is None
    answer = collector.answer()
    assert answer.token_ids == (1, 2, 3, 4)
    assert (answer.end_token_id, answer.stop_token_id) == (9, 9)


def test_a_prompt_may_be_tokens_where_it_is_not_continued():
    request = chat_request("a", [5, 0], {"token_ids": True}, stream=True)
    assert (request.messages, request.input_tokens) == (UNSET, [5, 0])
    with pytest.raises(ClientError, match="message 0 is a number"):
        messages_of([5, 0])
