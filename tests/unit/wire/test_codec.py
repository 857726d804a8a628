from contextlib import nullcontext, suppress
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw
from msgspec.structs import replace

from inferd.errors import ErrorCode, FrameTooLargeError, InvalidFrameError
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import (
    decode_aside,
    decode_blocks,
    decode_blocks_response,
    decode_command,
    decode_embed,
    decode_embed_response,
    decode_generate,
    decode_reply,
    decode_rerank,
    decode_rerank_response,
    decode_status,
    decode_text_response,
    encode,
    encode_in_parts,
)
from inferd.wire.commands import Command
from inferd.wire.requests import (
    CancelLine,
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import EmbeddingsFrame, EncodeUsage, ErrorFrame, TokenFrame
from inferd.wire.speech import AppendLine
from tests.cases import each_case
from tests.unit.strategies import (
    BLOCKS_REQUESTS,
    EMBED_REQUESTS,
    REQUESTS,
    RERANK_REQUESTS,
)
from tests.unit.wire import examples, responses

decode_cancel = partial(decode_aside, takes_appends=False)
decode_cancel_or_append = partial(decode_aside, takes_appends=True)
DECODERS = {
    decode_generate: (GenerateRequest, examples.TEXT),
    decode_blocks: (BlocksRequest, examples.BLOCKS),
    decode_embed: (EmbedRequest, examples.EMBED),
    decode_rerank: (RerankRequest, examples.RERANK),
    decode_cancel: (CancelLine, examples.CANCEL),
    decode_cancel_or_append: (CancelLine | AppendLine, examples.APPEND),
    decode_command: (Command, examples.COMMAND),
}
"""What reads each kind of line from a client, what it gives, and an example."""
ASIDE = (decode_cancel, decode_cancel_or_append)
"""What gives nothing for a line of another kind."""
OF_REQUESTS = [each for each in DECODERS if each not in ASIDE]
ANSWER_DECODERS = [
    *(decode_text_response, decode_blocks_response, decode_embed_response),
    *(decode_rerank_response, decode_status, decode_reply),
]


def kind_of(decode) -> str:
    return str(DECODERS[decode][0])


MESSAGE = '"messages":[{"role":"user","content":"hi"}]'
APPENDS = st.builds(
    AppendLine,
    id=st.text(),
    attachment_id=st.text(),
    bytes=st.text(),
    end=st.booleans(),
) | st.builds(
    AppendLine, id=st.text(), attachment_id=st.text(), end=st.just(value=True)
)
ASKED = GenerateRequest(messages=[ChatMessage("user", "hi")])


def frame_of(*members: str | bytes) -> bytes:
    """A frame with these members after ``messages``; bytes stand for themselves."""
    parts = [each if isinstance(each, bytes) else each.encode() for each in members]
    return b"{" + b",".join([MESSAGE.encode(), *parts]) + b"}"


# --- any bytes --------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *(b"null", b"true", b"0", b"-1", b"1.5", b"4294967296", b"1e999", b"NaN"),
        *(b'"user"', b'"id"', b'"role"', b'"\xff"', b'"\\ud800"', b'"', b"[", b"}"),
        *(b'{"type":"odd"}', b'{"kind":"odd"}', b'"type":"odd",', b'"id":"b",'),
        *(b"[" * 994 + b"]" * 994, b"1" * 5000, b",", b":", b"\\", b"\x00"),
    ]
)
KEYS = st.sampled_from(
    [
        *(b'"id"', b'"messages"', b'"role"', b'"content"', b'"temperature"', b'"type"'),
        *(b'"top_k"', b'"stream"', b'"grammar"', b'"x"', b'"i\\u0064"', b'"kind"'),
        *(b'"input"', b'"query"', b'"documents"', b'"attachments"', b'"tools"'),
    ]
)


def _object(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b",".join(key + b":" + value for key, value in members) + b"}"


OBJECTS = st.recursive(
    FRAGMENTS,
    lambda values: st.one_of(
        st.lists(values, max_size=3).map(lambda each: b"[" + b",".join(each) + b"]"),
        st.lists(st.tuples(KEYS, values), max_size=4).map(_object),
    ),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An example with pieces cut out and others put in."""
    frame = draw(st.sampled_from([example for _, example in DECODERS.values()]))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(frame)))
        end = min(len(frame), start + draw(st.integers(0, 2)))
        piece = draw(FRAGMENTS | st.binary(max_size=2))
        frame = frame[:start] + piece + frame[end:]
    return frame


@pytest.mark.parametrize("decode", DECODERS, ids=kind_of)
@settings(max_examples=50)
@given(frame=damaged() | OBJECTS | st.binary())
def test_any_bytes_are_a_request_or_an_invalid_frame(decode, frame):
    try:
        outcome: object = decode(frame)
    except InvalidFrameError as error:
        outcome = error
    kind, _ = DECODERS[decode]
    others = type(None) if decode in ASIDE else InvalidFrameError
    assert isinstance(outcome, (kind, InvalidFrameError, others))


@settings(max_examples=50)
@given(st.binary() | OBJECTS)
def test_any_bytes_are_an_answer_or_an_invalid_frame(frame):
    for decode in ANSWER_DECODERS:
        with suppress(InvalidFrameError):
            decode(frame)


@each_case("decode", OF_REQUESTS, ids=kind_of)
def test_half_a_request_is_none(decode):
    _, example = DECODERS[decode]
    decode(example)
    for n_bytes in range(len(example)):
        with pytest.raises(InvalidFrameError):
            decode(example[:n_bytes])


@each_case("decode", OF_REQUESTS, ids=kind_of)
@each_case(
    "frame",
    [
        *(b"", b" ", b"null", b"[]", b'"id"', b"{", b"{}", b"{}{}", b"\xef\xbb\xbf{}"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":' + b"[" * 100_000),
    ],
    ids=lambda frame: frame[:20].decode("latin-1"),
)
def test_what_is_no_object_is_no_request(decode, frame):
    with pytest.raises(InvalidFrameError):
        decode(frame)


@each_case(
    "frame",
    [
        frame_of('"x":' + "[" * 100_000),
        frame_of(b'"id":"\xff"'),
        frame_of('"id":"\\ud800"'),
        frame_of('"temperature":NaN'),
        frame_of('"temperature":Infinity'),
        frame_of('"temperature":1e999'),
        frame_of('"temperature":' + "1" * 400),
        frame_of('"temperature":"1"'),
        frame_of('"temperature":true'),
        frame_of('"max_tokens":1e3'),
        frame_of('"stream":1'),
        b'{"messages":{}}',
        b'{"messages":["hi"]}',
        b'{"messages":[{"role":"user"}]}',
        b'{"messages":[{"content":"hi"}]}',
        b'{"messages":[{"role":"user","content":["hi"]}]}',
        frame_of() + b"x",
    ],
    ids=lambda frame: frame[44:100].decode("latin-1") or frame.decode(),
)
def test_a_line_of_another_shape_is_no_request(frame):
    with pytest.raises(InvalidFrameError):
        decode_generate(frame)


def test_the_first_fault_is_told_with_its_place():
    with pytest.raises(InvalidFrameError) as caught:
        decode_generate(b'{"messages":[{"role":"user","content":5}]}')
    assert caught.value.message == (
        "decode: Expected `str`, got `int` - at `$.messages[0].content`"
    )


@each_case(
    "member",
    [
        *('"x":1e999', '"x":[[{}]]', '"x":null', '"x":"\\ud83d\\ude00"', '"X":1'),
        *('"top_k":null', '"stream":null', '"temperature":null', '"id":""'),
        *('"min_p":"of v2"', '"tools":7', '"type":"other"', b'"x":"\xff"'),
    ],
)
def test_unknown_fields_and_null_options_are_as_if_they_were_not_there(member):
    assert decode_generate(frame_of(member)) == ASKED


def test_white_space_around_a_request_is_nothing():
    assert decode_generate(b" " + frame_of() + b"\r") == ASKED


# --- cancel lines, append lines and commands ----------------------------------------------------------


def test_a_cancel_with_two_ids_is_no_line_that_can_be_read():
    with pytest.raises(InvalidFrameError, match="duplicate field `id`"):
        decode_cancel(b'{"type":"cancel","id":"a","id":"b"}')


@each_case(
    "line",
    [
        b'{"type":"cancel","id":"a"}',
        b' { "id" : "a" , "x" : [{}] , "type" : "cancel" }\r',
        b'{"type":"cancel","id":"a","messages":5}',
        b'{"t\\u0079pe":"canc\\u0065l","id":"\\u0061"}',
    ],
)
def test_a_line_of_type_cancel_is_a_cancel_whatever_else_it_has(line):
    assert decode_cancel(line) == CancelLine(id="a")


@each_case(
    "line",
    [
        frame_of('"id":"cancel"'),
        frame_of('"x":{"type":"cancel","id":"a"}'),
        frame_of('"type":"cancelled","x":"cancel"'),
        frame_of('"type":7,"x":"cancel"'),
        b'{"messages":[{"role":"user","content":"cancel"}]}',
        b'{"input":["cancel"]}',
        b'{"command":"cancel","id":"a"}',
    ],
)
def test_a_line_that_only_speaks_of_cancel_is_none(line):
    assert decode_cancel(line) is None


@each_case(
    "line", [b'{"type":"cancel","id":"a"', b'["cancel"]', b'"cancel"', b"cancel", b""]
)
def test_what_is_no_object_is_no_cancel(line):
    assert decode_cancel(line) is None


@each_case("member", ["", ',"id":null', ',"id":7', ',"id":["a"]'])
def test_a_cancel_without_an_id_is_refused(member):
    with pytest.raises(InvalidFrameError, match="id"):
        decode_cancel(f'{{"type":"cancel"{member}}}'.encode())


@each_case(
    "line",
    [
        frame_of('"id":"append"'),
        frame_of('"x":{"type":"append","id":"a","attachment_id":"s","bytes":""}'),
        b'{"messages":[{"role":"user","content":"append"}]}',
        b'{"type":"append","id":"a"',
        b'["append"]',
        b'"append"',
    ],
)
def test_a_line_that_only_speaks_of_append_is_none(line):
    assert decode_cancel_or_append(line) is None


@given(
    st.builds(CancelLine, id=st.text()).map(encode)
    | st.text().map(lambda text: msgspec.json.encode({"type": text, "id": "a"}))
)
def test_a_cancel_is_one_where_lines_may_append_too(line):
    cancel = decode_cancel(line)
    assert cancel == decode_cancel_or_append(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"type":"append","id":"a","attachment_id":"s","fd":0}', {"fd": 0}),
        (b'{"type":"append","id":"a","attachment_id":"s","end":true}', {"end": True}),
        (
            (
                b'{"x":1,"end":false,"bytes":"no base64","fd":null,'
                b'"attachment_id":"s","id":"a","t\\u0079pe":"app\\u0065nd"}'
            ),
            {"bytes": "no base64"},
        ),
    ],
)
def test_a_line_of_type_append_is_one_whatever_else_it_has(line, expected):
    assert decode_cancel_or_append(line) == AppendLine(
        id="a", attachment_id="s", **expected
    )


@each_case(
    ("members", "fault"),
    [
        ('"attachment_id":"s","bytes":""', "id"),
        ('"id":"a","bytes":""', "attachment_id"),
        ('"id":7,"attachment_id":"s","bytes":""', "id"),
        ('"id":"a","attachment_id":"s"', "required field `bytes`"),
        ('"id":"a","attachment_id":"s","end":false', "required field `bytes`"),
        ('"id":"a","attachment_id":"s","bytes":null,"fd":null', "field `bytes`"),
        ('"id":"a","attachment_id":"s","bytes":"","fd":0', "exclude each other"),
        ('"id":"a","attachment_id":"s","fd":-1', "int` >= 0 - at `..fd"),
        ('"id":"a","attachment_id":"s","bytes":"","end":null', "end"),
        ('"id":"a","attachment_id":"s","bytes":"","bytes":""', "duplicate field"),
    ],
)
def test_an_append_line_that_brings_nothing_or_two_things_is_refused(members, fault):
    with pytest.raises(InvalidFrameError, match=fault):
        decode_cancel_or_append(f'{{"type":"append",{members}}}'.encode())


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b'{"command":"metrics"}', Command(command="metrics")),
        (b'{"command":"cancel","id":"a"}', Command(command="cancel", id="a")),
        (b'{"id":null,"x":1,"command":""}', Command(command="")),
    ],
)
def test_a_command_is_read_whether_or_not_there_is_such_a_command(line, command):
    assert decode_command(line) == command


@pytest.mark.parametrize("line", [b'{"id":"a"}', b'{"command":1}', b'{"command":null}'])
def test_a_command_has_a_name(line):
    with pytest.raises(InvalidFrameError, match="command"):
        decode_command(line)


# --- there and back -------------------------------------------------------------------


@each_case(
    ("decode", "requests"),
    [
        (decode_generate, REQUESTS),
        (decode_blocks, BLOCKS_REQUESTS),
        (decode_embed, EMBED_REQUESTS),
        (decode_rerank, RERANK_REQUESTS),
        (decode_cancel, st.builds(CancelLine, id=st.text())),
        (decode_cancel_or_append, APPENDS),
        (
            decode_command,
            st.builds(Command, command=st.text(), id=st.none() | st.text()),
        ),
    ],
)
@settings(max_examples=30)
@given(data=st.data())
def test_a_request_survives_encoding(decode, requests, data):
    request = data.draw(requests)
    line = encode(request)
    assert decode(line) == request
    assert line.index(b"\n") == len(line) - 1


@each_case(
    ("decode", "answers"),
    [
        (decode_text_response, responses.TEXT),
        (decode_blocks_response, responses.BLOCKS),
        (decode_embed_response, responses.EMBED),
        (decode_rerank_response, responses.RERANK),
        (decode_reply, responses.REPLIES),
    ],
)
@settings(max_examples=30)
@given(data=st.data())
def test_an_answer_survives_encoding(decode, answers, data):
    answer = data.draw(answers)
    line = encode(answer)
    assert decode(line) == answer
    assert line.index(b"\n") == len(line) - 1


@each_case(
    "line", [b"", b"{}", b"ready", b'{"status":1}', b'{"status":"ready","phase":[]}']
)
def test_what_has_no_status_is_no_status_frame(line):
    with pytest.raises(InvalidFrameError):
        decode_status(line)


@each_case(
    ("decode", "frame"),
    [
        (decode_text_response, b'{"type":"frame","id":"a","block":{}}'),
        (decode_text_response, b'{"type":"token","id":"a"}'),
        (decode_text_response, b'{"id":"a","content":"x"}'),
        (decode_blocks_response, b'{"type":"token","id":"a","content":"x"}'),
        (decode_blocks_response, b'{"type":"frame","id":"a","block":{"type":"odd"}}'),
        (decode_embed_response, b'{"type":"status","id":"a","status":"queued"}'),
        (decode_rerank_response, b'{"type":"embeddings","id":"a"}'),
        (decode_reply, b'{"id":"admin","type":"status","status":"ready"}'),
        *(
            (decode, b'{"type":"error","id":"a","code":"on_fire","message":"x"}')
            for decode in ANSWER_DECODERS
            if decode not in (decode_status, decode_reply)
        ),
    ],
)
def test_what_the_protocol_does_not_know_is_no_answer(decode, frame):
    with pytest.raises(InvalidFrameError):
        decode(frame)


@each_case("code", ErrorCode)
def test_every_code_is_read_from_every_socket(code):
    line = f'{{"type":"error","id":"","code":"{code}","message":"x"}}'.encode()
    for decode in ANSWER_DECODERS[:4]:
        assert decode(line) == ErrorFrame(id="", code=code, message="x")


def test_a_frame_that_reaches_the_cap_is_not_written(monkeypatch):
    frame = TokenFrame(id="a", content="hello")
    size = len(encode(frame)) - 1
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", size + 1)
    assert len(encode(frame)) == size + 1
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", size)
    with pytest.raises(FrameTooLargeError, match=f"^frame exceeds {size} byte cap$"):
        encode(frame)


# --- vectors in parts -------------------------------------------------------------------

NASTY = st.text() | st.sampled_from(['"embeddings":[]', '\\","embeddings":[],"x":"'])


def embeddings_frame(*names: str) -> EmbeddingsFrame:
    request_id, model, backend = names
    return EmbeddingsFrame(
        id=request_id,
        embeddings=Raw(b"[]"),
        dimensions=1,
        model=model,
        usage=EncodeUsage(1),
        backend=backend,
    )


@settings(max_examples=40)
@given(st.tuples(NASTY, NASTY, NASTY), st.lists(st.binary(min_size=1), min_size=1))
def test_a_frame_written_in_parts_is_the_one_written_at_once(names, parts):
    frame = embeddings_frame(*names)
    whole = replace(frame, embeddings=Raw(b"".join(parts)))
    assert b"".join(encode_in_parts(frame, parts)) == encode(whole)


@pytest.mark.parametrize("n_over", [-1, 0])
def test_a_frame_in_parts_has_the_same_cap_as_one_at_once(monkeypatch, n_over):
    frame = embeddings_frame("a", "b", "c")
    n_whole = len(encode(replace(frame, embeddings=Raw(b"[[1],[2]]")))) - 1
    monkeypatch.setattr("inferd.wire.codec.MAX_FRAME_BYTES", n_whole - n_over)
    with nullcontext() if n_over < 0 else pytest.raises(FrameTooLargeError):
        encode_in_parts(frame, [b"[[1],", b"[2]]"])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b'{"messages":[],"x":' + b"[" * 5000, "decode: JSON is nested too deeply"),
        (b'{"id":"\xff","messages":[]}', "decode: a string is not valid UTF-8"),
    ],
)
def test_what_python_says_of_a_fault_is_not_repeated(frame, said):
    with pytest.raises(InvalidFrameError) as caught:
        decode_generate(frame)
    assert caught.value.message == said


@each_case("decode", [decode_generate, decode_blocks])
@each_case("role", ["User", "function", "tool"])
def test_an_unknown_role_is_told_with_those_that_are_allowed(decode, role):
    message = b'{"messages":[{"role":"%s","content":%s}]}'
    content = b"[]" if decode is decode_blocks else b'""'
    with pytest.raises(InvalidFrameError) as caught:
        decode(message % (role.encode(), content))
    text = (
        f"Invalid enum value '{role}' - at `$.messages[0].role`"
        "; allowed: system, user, assistant"
    )
    if role == "tool":
        text += "; in v2 the result of a tool is a tool_result block of the user"
    assert str(caught.value) == text


@each_case(
    "content",
    [
        b'"hi"',
        b"null",
        b'[{"type":"tool_result","tool_call_id":"t","content":"hi"}]',
        b'[{"type":"x"},{"type":"tool_result","tool_call_id":"t","content":"hi"}]',
    ],
)
def test_content_that_is_no_array_is_told_with_what_it_is(content):
    with pytest.raises(InvalidFrameError, match="^Expected `array`, got") as caught:
        decode_blocks(b'{"messages":[{"role":"user","content":%s}]}' % content)
    assert str(caught.value).endswith(
        '; content is an array of blocks, such as [{"type":"text","text":"hello"}]'
    )


@each_case(
    ("decode", "line"),
    [
        (decode_generate, b'{"messages":[{"role":"user","content":[]}]}'),
        (decode_generate, b'{"messages":[{"role":1,"content":""}]}'),
        (decode_blocks, b'{"messages":"hi"}'),
        (decode_blocks, b'{"messages":[{"role":"user","content":["hi"]}]}'),
    ],
)
def test_other_faults_are_told_as_they_are(decode, line):
    with pytest.raises(InvalidFrameError, match="^Expected `[^;]*$"):
        decode(line)


@pytest.mark.parametrize("line", [b'{"id":"a"}', b'{"id":"a","tokens":null}'])
def test_an_embed_request_without_texts_is_none(line):
    with pytest.raises(InvalidFrameError, match="required field `input`"):
        decode_embed(line)
    with pytest.raises(InvalidFrameError, match="input"):
        decode_embed(line[:-1] + b',"input":null}')
    assert decode_embed(line[:-1] + b',"input":[]}').input == []
