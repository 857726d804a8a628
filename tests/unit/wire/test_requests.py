import msgspec
import pytest

from inferd.limits import U32_MAX
from inferd.wire.requests import ChatMessage, GenerateRequest

TURN = {"role": "user", "content": "hi"}
U32_FIELDS = ["top_k", "max_tokens", "image_token_budget"]


def read(**fields):
    return msgspec.convert({"messages": [TURN], **fields}, GenerateRequest)


def test_all_but_the_messages_may_be_left_out():
    request = read()
    assert request.messages == [ChatMessage("user", "hi")]
    assert (request.id, request.grammar) == ("", "")
    assert {request.temperature, request.top_p, request.stream} == {None}
    assert {getattr(request, field) for field in U32_FIELDS} == {None}
    with pytest.raises(
        msgspec.ValidationError, match="missing required field `messages`"
    ):
        msgspec.convert({}, GenerateRequest)


@pytest.mark.parametrize("field", U32_FIELDS)
def test_an_unsigned_field_takes_what_32_bits_hold(field):
    assert [getattr(read(**{field: n}), field) for n in (0, U32_MAX)] == [0, U32_MAX]
    for outside in (-1, U32_MAX + 1, 1.0, True, "1"):
        with pytest.raises(msgspec.ValidationError, match=field):
            read(**{field: outside})


@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_whole_number_will_do_for_a_fraction(field):
    assert getattr(read(**{field: 1}), field) == 1.0


@pytest.mark.parametrize("field", ["temperature", "top_p", "stream", *U32_FIELDS])
def test_null_is_as_good_as_nothing_for_an_option(field):
    assert read(**{field: None}) == read()


@pytest.mark.parametrize("field", ["id", "grammar", "messages"])
def test_null_is_no_text_and_no_conversation(field):
    with pytest.raises(msgspec.ValidationError, match=field):
        read(**{field: None})


def test_ranges_that_are_meaning_are_not_checked_here():
    request = read(temperature=-1, top_p=2, image_token_budget=1, messages=[])
    assert (request.temperature, request.top_p, request.messages) == (-1, 2, [])


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_there_are_three_roles(role):
    turn = {"role": role, "content": ""}
    assert read(messages=[turn]).messages == [ChatMessage(role, "")]


@pytest.mark.parametrize("role", ["tool", "USER", "", None, 1])
def test_there_is_no_fourth_role(role):
    with pytest.raises(msgspec.ValidationError, match="role"):
        read(messages=[{"role": role, "content": ""}])
