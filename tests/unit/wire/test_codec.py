import json
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from inferd.errors import ErrorCode, FrameTooLargeError, InvalidFrameError
from inferd.wire.codec import decode_request, decode_response, decode_status, encode
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, ErrorFrame, TokenFrame, Usage
from tests.unit.strategies import REQUESTS, U32

MESSAGE = '"messages":[{"role":"user","content":"hi"}]'
ASKED = GenerateRequest(messages=[ChatMessage("user", "hi")])

RESPONSES = st.one_of(
    st.builds(TokenFrame, id=st.text(), content=st.text()),
    st.builds(
        DoneFrame,
        id=st.text(),
        content=st.text(),
        usage=st.builds(Usage, U32, U32),
        stop_reason=st.sampled_from(["end", "length", "cancelled", "error"]),
        backend=st.text(),
    ),
    st.builds(
        ErrorFrame, id=st.text(), code=st.sampled_from(ErrorCode), message=st.text()
    ),
    st.builds(
        ErrorFrame,
        id=st.text(),
        code=st.just(ErrorCode.INVALID_REQUEST),
        message=st.text(),
        prompt_tokens=U32,
        n_ctx=U32,
        tokens_over=U32,
    ),
)


def frame_of(*members: str | bytes) -> bytes:
    """A frame with these members after ``messages``; bytes stand for themselves."""
    parts = [each if isinstance(each, bytes) else each.encode() for each in members]
    return b"{" + b",".join([MESSAGE.encode(), *parts]) + b"}"


# --- any bytes --------------------------------------------------------------------

LEAVES = st.sampled_from(
    [
        *(b"null", b"true", b"0", b"-1", b"1.5", b"4294967296", b"1e999", b"NaN"),
        *(b'"user"', b'"id"', b'"role"', b'"\xff"', b'"\\ud800"', b'"', b"[", b"}"),
        *(b"[" * 994 + b"]" * 994, b"1" * 5000),
    ]
)
KEYS = st.sampled_from(
    [
        *(b'"id"', b'"messages"', b'"role"', b'"content"', b'"temperature"'),
        *(b'"top_k"', b'"stream"', b'"grammar"', b'"x"', b'"i\\u0064"'),
    ]
)
TURN = b'{"role":"user","content":"hi"}'


def _object(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b",".join(key + b":" + value for key, value in members) + b"}"


OBJECTS = st.recursive(
    LEAVES | st.just(TURN),
    lambda values: st.one_of(
        st.lists(values, max_size=3).map(lambda each: b"[" + b",".join(each) + b"]"),
        st.lists(st.tuples(KEYS, values), max_size=4).map(_object),
    ),
    max_leaves=6,
)
ALMOST_REQUESTS = st.lists(st.tuples(KEYS, OBJECTS), max_size=4).map(
    lambda members: _object([(b'"messages"', b"[" + TURN + b"]"), *members])
)


@settings(max_examples=60)
@given(st.binary() | OBJECTS | ALMOST_REQUESTS)
def test_any_bytes_are_a_request_or_an_invalid_frame(frame):
    try:
        outcome: object = decode_request(frame)
    except InvalidFrameError as error:
        outcome = error
    assert isinstance(outcome, GenerateRequest | InvalidFrameError)


@settings(max_examples=50)
@given(st.binary() | OBJECTS)
def test_any_bytes_are_a_response_or_an_invalid_frame(frame):
    for decode in (decode_response, decode_status):
        with suppress(InvalidFrameError):
            decode(frame)


@pytest.mark.parametrize(
    "frame",
    [
        *(b"", b" ", b"null", b"[]", b'"id"', b"{", b"{}", b"{}{}", b"\xef\xbb\xbf{}"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 100_000),
        frame_of('"x":' + "[" * 100_000),
        frame_of(b'"id":"\xff"'),
        frame_of('"id":"\\ud800"'),
        frame_of('"id":null'),
        frame_of('"id":1'),
        frame_of('"grammar":null'),
        frame_of('"temperature":NaN'),
        frame_of('"temperature":Infinity'),
        frame_of('"temperature":1e999'),
        frame_of('"temperature":"1"'),
        frame_of('"temperature":true'),
        frame_of('"top_k":64.0'),
        frame_of('"top_k":true'),
        frame_of('"top_k":-1'),
        frame_of('"top_k":4294967296'),
        frame_of('"max_tokens":1e3'),
        frame_of('"stream":1'),
        b'{"id":"a"}',
        b'{"messages":null}',
        b'{"messages":{}}',
        b'{"messages":["hi"]}',
        b'{"messages":[{"role":"user"}]}',
        b'{"messages":[{"content":"hi"}]}',
        b'{"messages":[{"role":"tool","content":"hi"}]}',
        b'{"messages":[{"role":"User","content":"hi"}]}',
        b'{"messages":[{"role":"user","content":["hi"]}]}',
        frame_of() + b"x",
    ],
    ids=lambda frame: frame[:60].decode("latin-1"),
)
def test_a_line_of_another_shape_is_no_request(frame):
    with pytest.raises(InvalidFrameError):
        decode_request(frame)


@pytest.mark.parametrize(
    "member",
    [
        *('"x":1e999', '"x":[[{}]]', '"x":null', '"x":"\\ud83d\\ude00"', '"X":1'),
        *('"top_k":null', '"stream":null', '"temperature":null', '"id":""'),
    ],
)
def test_unknown_fields_and_null_options_are_as_if_they_were_not_there(member):
    assert decode_request(frame_of(member)) == ASKED


def test_white_space_around_a_request_is_nothing():
    assert decode_request(b" " + frame_of() + b"\r") == ASKED


# --- fields that stand twice --------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "field"),
    [
        ('"id":"a","id":"b"', "id"),
        ('"id":"a","id":"a"', "id"),
        ('"temperature":1,"x":{},"temperature":null', "temperature"),
        ('"messages":[{"role":"user","content":"again"}]', "messages"),
        ('"grammar":"","grammar":"grammar"', "grammar"),
    ],
)
def test_a_field_that_stands_twice_is_refused(member, field):
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_request(frame_of(member))


@pytest.mark.parametrize("field", ["role", "content"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_field_that_stands_twice_in_a_message_is_refused(field, index):
    turns = ['{"role":"user","content":"user"}'] * 2
    turns[index] = turns[index].replace("}", f',"{field}":"user"}}')
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_request(f'{{"messages":[{",".join(turns)}]}}'.encode())


@pytest.mark.parametrize(
    "member",
    [
        '"x":1,"x":2',
        '"x":{"id":1,"id":2}',
        '"x":[{"role":1,"role":2}],"y":"content"',
        '"x":"id","y":"id"',
        '"x":"id","x":"id"',
        '"x":{"messages":1,"temperature":2}',
    ],
)
def test_what_only_looks_like_a_field_may_stand_twice(member):
    assert decode_request(frame_of(member)) == ASKED


@pytest.mark.parametrize(
    "name", [*GenerateRequest.__struct_fields__, "role", "content"]
)
def test_a_value_that_is_the_name_of_a_field_is_no_duplicate(name):
    request = GenerateRequest(
        id=name, messages=[ChatMessage("user", name)], grammar=name, top_k=1
    )
    assert decode_request(encode(request)) == request


@pytest.mark.parametrize(
    "member",
    [
        b'"x":"\xff"',
        b'"x":' + b"1" * 5000,
        b'"x":' + b"[" * 900 + b"]" * 900,
        b'"x":1e999',
    ],
    ids=["bytes that are no text", "a long number", "deep nesting", "a large number"],
)
def test_a_second_look_for_duplicates_finds_them_or_refuses_the_frame(member):
    with pytest.raises(InvalidFrameError):
        decode_request(frame_of(member, '"id":"a"', '"id":"b"'))


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-0.0"])
def test_a_second_look_refuses_no_number_that_the_first_let_pass(number):
    member = f'"x":[{number},"id","id"]'
    assert decode_request(frame_of(member)) == ASKED


@settings(max_examples=50)
@given(REQUESTS, st.data())
def test_a_request_is_refused_exactly_when_a_field_stands_twice(request_, data):
    members = list(json.loads(encode(request_)).items())
    index = st.none() | st.integers(0, len(members) - 1)
    if (repeated := data.draw(index)) is not None:
        members.insert(data.draw(index) or 0, members[repeated])
    frame = _object([(text(name), text(value)) for name, value in members])
    if repeated is None:
        assert decode_request(frame) == request_
    else:
        with pytest.raises(InvalidFrameError, match=r"^duplicate field"):
            decode_request(frame)


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def test_a_frame_too_long_for_a_second_look_is_not_given_one(monkeypatch):
    frame = frame_of('"id":"a","id":"b"')
    monkeypatch.setattr("inferd.wire.codec.REPEATS_CHECKED_BYTES", len(frame))
    with pytest.raises(InvalidFrameError):
        decode_request(frame)
    monkeypatch.setattr("inferd.wire.codec.REPEATS_CHECKED_BYTES", len(frame) - 1)
    assert decode_request(frame).id == "b"


# --- there and back -------------------------------------------------------------------


@settings(max_examples=50)
@given(REQUESTS)
def test_a_request_survives_encoding(request_):
    assert decode_request(encode(request_)) == request_


@settings(max_examples=50)
@given(RESPONSES)
def test_a_response_survives_encoding(response):
    assert decode_response(encode(response)) == response


@settings(max_examples=50)
@given(RESPONSES | REQUESTS)
def test_a_message_is_one_line(message):
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"ready", b'{"status":1}', b'{"status":"ready","phase":[]}']
)
def test_what_has_no_status_is_no_status_frame(line):
    with pytest.raises(InvalidFrameError):
        decode_status(line)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"type":"frame","id":"a","block":{}}',
        b'{"type":"token","id":"a"}',
        b'{"type":"error","id":"a","code":"on_fire","message":"x"}',
        b'{"id":"a","content":"x"}',
    ],
)
def test_what_the_protocol_does_not_know_is_no_response(frame):
    with pytest.raises(InvalidFrameError):
        decode_response(frame)


def test_a_frame_that_reaches_the_cap_is_not_written(monkeypatch):
    frame = TokenFrame(id="a", content="hello")
    size = len(encode(frame)) - 1
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", size + 1)
    assert len(encode(frame)) == size + 1
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", size)
    with pytest.raises(FrameTooLargeError, match=f"^frame exceeds {size} byte cap$"):
        encode(frame)
