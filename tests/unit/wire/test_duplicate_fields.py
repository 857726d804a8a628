import json
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from inferd.errors import InvalidFrameError
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
    encode,
)
from inferd.wire.duplicate_fields import refuse_duplicates
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.cases import each_case
from tests.unit.strategies import REQUESTS
from tests.unit.wire import examples

MESSAGE = '"messages":[{"role":"user","content":"hi"}]'
ASKED = GenerateRequest(messages=[ChatMessage("user", "hi")])
SURFACES = [
    (decode_generate, examples.TEXT),
    (decode_blocks, examples.BLOCKS),
    (decode_embed, examples.EMBED),
    (decode_rerank, examples.RERANK),
]


def frame_of(*members: str | bytes) -> bytes:
    """A v1 frame with these members after ``messages``; bytes stand for themselves."""
    parts = [each if isinstance(each, bytes) else each.encode() for each in members]
    return b"{" + b",".join([MESSAGE.encode(), *parts]) + b"}"


def members_of(frame: bytes) -> list[bytes]:
    """The members of an object, as text."""
    return [
        f"{json.dumps(name)}:{json.dumps(value)}".encode()
        for name, value in json.loads(frame).items()
    ]


# --- fields of requests -----------------------------------------------------------------


@each_case(
    ("decode", "example", "index"),
    [
        (decode, example, index)
        for decode, example in SURFACES
        for index in range(len(members_of(example)))
    ],
)
def test_a_field_that_stands_twice_is_refused(decode, example, index):
    members = members_of(example)
    name = next(iter(json.loads(b"{" + members[index] + b"}")))
    frame = b"{" + b",".join([*members, members[index]]) + b"}"
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{name}`$"):
        decode(frame)


@each_case(
    ("member", "field"),
    [
        ('"id":"a","id":"b"', "id"),
        ('"temperature":1,"x":{},"temperature":null', "temperature"),
        ('"messages":[{"role":"user","content":"again"}]', "messages"),
        ('"grammar":"","grammar":"grammar"', "grammar"),
    ],
)
def test_it_does_not_matter_where_or_with_what_value(member, field):
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_generate(frame_of(member))


@each_case(
    "member",
    [
        '"x":1,"x":2',
        '"x":{"id":1,"id":2}',
        '"x":[{"role":1,"role":2}],"y":"content"',
        '"x":"id","y":"id"',
        '"x":"id","x":"id"',
        '"x":{"messages":1,"temperature":2}',
        '"attachments":[{"id":1,"id":2}],"attachments":1',
        '"tools":[{"name":1,"name":2}],"tools":2,"input":[],"input":[]',
        '"min_p":1,"min_p":2,"type":"x","type":"y"',
    ],
)
def test_what_only_looks_like_a_field_may_stand_twice(member):
    assert decode_generate(frame_of(member)) == ASKED


@each_case("name", [*GenerateRequest.__struct_fields__, "role", "content"])
def test_a_value_that_is_the_name_of_a_field_is_no_duplicate(name):
    request = GenerateRequest(
        id=name, messages=[ChatMessage("user", name)], grammar=name, top_k=1
    )
    assert decode_generate(encode(request)) == request


# --- fields of what is in them ------------------------------------------------------------


@each_case("field", ["role", "content"])
@each_case("index", [0, 1])
def test_a_field_that_stands_twice_in_a_message_is_refused(field, index):
    turns = ['{"role":"user","content":"user"}'] * 2
    turns[index] = turns[index].replace("}", f',"{field}":"user"}}')
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_generate(f'{{"messages":[{",".join(turns)}]}}'.encode())


TEXT = '{"type":"text","text":""}'
PARTS = [
    '{"type":"text","text":"","text":""}',
    '{"type":"image","attachment_id":"i","attachment_id":"i"}',
    '{"type":"audio","type":"audio","attachment_id":"i"}',
    '{"type":"video","attachment_id":"i","type":"video"}',
    '{"type":"tool_use","tool_call_id":"","name":"","name":"","input":1}',
    '{"type":"tool_use","tool_call_id":"","name":"","input":1,"input":2}',
    '{"type":"tool_result","tool_call_id":"","tool_call_id":"","content":[]}',
    '{"type":"tool_result","tool_call_id":"","content":[],"content":[]}',
]


@each_case(
    ("part", "levels"),
    [
        *((part, levels) for part in PARTS for levels in (0, 1, 300)),
        *(('{"type":"odd","type":"odd"}', levels) for levels in (0, 1, 15)),
    ],
)
def test_a_field_that_stands_twice_in_a_block_is_refused_how_deep_ever(part, levels):
    start, end = '{"type":"tool_result","tool_call_id":"","content":[', "]}"
    block = start * levels + part + end * levels
    frame = f'{{"messages":[{{"role":"user","content":[{TEXT},{block}]}}]}}'
    with pytest.raises(InvalidFrameError, match="^duplicate field `"):
        decode_blocks(frame.encode())


@each_case(
    "member",
    [
        '"attachments":[{"kind":"video","id":"a","id":"b","bytes":""}]',
        '"attachments":[{"kind":"video","kind":"video","id":"a","bytes":""}]',
        '"attachments":[{"kind":"image","id":"","width":1,"height":1,"width":1,"bytes":""}]',
        '"attachments":[{"kind":"audio","id":"","sample_rate":1,"bytes":"","bytes":""}]',
        '"attachments":[{"kind":"audio","sample_rate":1,"sample_rate":1,"id":"","bytes":""}]',
        '"tools":[{"name":"f","name":"f","description":"","input_schema":{}}]',
        '"tools":[{"name":"f","description":"","description":"","input_schema":{}}]',
        '"tools":[{"name":"f","description":"","input_schema":1,"input_schema":1}]',
        '"response_format":{"type":"regex","type":"regex","pattern":"a"}',
        '"response_format":{"type":"regex","pattern":"a","pattern":"b"}',
        '"response_format":{"type":"json_schema","schema":{},"schema":{}}',
        '"response_format":{"type":"lark","grammar":"a","grammar":"a"}',
        '"tool_choice":{"name":"f","name":"g"}',
    ],
)
def test_a_field_that_stands_twice_in_a_part_of_a_request_is_refused(member):
    with pytest.raises(InvalidFrameError, match="^duplicate field `"):
        decode_blocks(f'{{"messages":[],{member}}}'.encode())


@each_case(
    "frame",
    [
        (
            '{"messages":[{"role":"user","content":[{"type":"tool_use","tool_call_id":"",'
            '"name":"","input":{"name":1,"name":2,"content":[{"type":1,"type":2}]}}]}]}'
        ),
        (
            '{"messages":[],"tools":[{"name":"","description":"","input_schema":'
            '{"type":"object","type":"array","tools":[{"name":1,"name":2}]}}]}'
        ),
        '{"messages":[{"role":"user","content":[],"x":1,"x":2,"type":1,"type":2}]}',
        '{"messages":[{"role":"user","content":[{"type":"text","text":"","y":1,"y":2}]}]}',
        '{"messages":[],"logit_bias":{"1":1,"1":2},"x":{"id":1,"id":2}}',
        (
            '{"messages":[],"response_format":{"type":"json_schema","schema":'
            '{"type":1,"type":2},"x":1,"x":2},"tool_choice":{"name":"f","x":1,"x":2}}'
        ),
        (
            '{"messages":[{"role":"user","content":[{"type":"odd",'
            '"content":{"type":1,"type":2}}]}]}'
        ),
    ],
    ids=[
        "input",
        "input_schema",
        "message",
        "block",
        "biases",
        "format",
        "unknown block",
    ],
)
def test_what_is_inside_json_of_others_may_stand_twice(frame):
    assert decode_blocks(frame.encode()).messages is not None


# --- the second look --------------------------------------------------------------------


@each_case(
    "member",
    [
        b'"x":"\xff"',
        b'"\xff":1',
        b'"x":' + b"1" * 5000,
        b'"x":' + b"[" * 900 + b"]" * 900,
        b'"x":1e999',
    ],
    ids=["bytes", "a key of bytes", "a long number", "deep nesting", "a large number"],
)
def test_a_second_look_finds_repeats_or_refuses_the_frame(member):
    with pytest.raises(InvalidFrameError):
        decode_generate(frame_of(member, '"id":"a"', '"id":"b"'))


@each_case("levels", range(940, 1000, 4))
def test_nesting_that_can_be_read_but_once_ends_a_frame_and_nothing_else(levels):
    frame = frame_of('"x":' + "[" * levels + "]" * levels, '"id":"a"', '"y":"id"')
    with suppress(InvalidFrameError):
        assert decode_generate(frame).id == "a"


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-0.0"])
def test_a_second_look_refuses_no_number_that_the_first_let_pass(number):
    member = f'"x":[{number},"id","id"]'
    assert decode_generate(frame_of(member)) == ASKED


@settings(max_examples=50)
@given(REQUESTS, st.data())
def test_a_request_is_refused_exactly_when_a_field_stands_twice(request_, data):
    members = members_of(encode(request_))
    index = st.none() | st.integers(0, len(members) - 1)
    if (repeated := data.draw(index)) is not None:
        members.insert(data.draw(index) or 0, members[repeated])
    frame = b"{" + b",".join(members) + b"}"
    if repeated is None:
        assert decode_generate(frame) == request_
    else:
        with pytest.raises(InvalidFrameError, match=r"^duplicate field"):
            decode_generate(frame)


def test_a_frame_too_long_for_a_second_look_is_not_given_one(monkeypatch):
    frame = frame_of('"id":"a","id":"b"')
    monkeypatch.setattr(
        "inferd.wire.duplicate_fields.REPEATS_CHECKED_BYTES", len(frame)
    )
    with pytest.raises(InvalidFrameError):
        decode_generate(frame)
    monkeypatch.setattr(
        "inferd.wire.duplicate_fields.REPEATS_CHECKED_BYTES", len(frame) - 1
    )
    assert decode_generate(frame).id == "b"


def test_of_a_key_spelt_with_escapes_the_last_one_counts():
    assert decode_generate(frame_of('"id":"a","i\\u0064":"b"')).id == "b"


def test_a_frame_without_repeats_passes():
    refuse_duplicates(examples.BLOCKS, BlocksRequest)
