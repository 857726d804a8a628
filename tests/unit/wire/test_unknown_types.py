import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from inferd.errors import InvalidFrameError
from inferd.limits.protocol import MAX_BLOCK_DEPTH
from inferd.wire import blocks
from inferd.wire.blocks import BlocksRequest, UnknownAttachment, UnknownBlock
from inferd.wire.codec import decode_blocks, encode
from inferd.wire.unknown_types import decode_with_unknowns, is_unknown_tag
from tests.cases import each_case
from tests.unit.strategies import BLOCKS_REQUESTS
from tests.unit.wire import examples

ODD = {"type": "hologram", "text": 5}
ODD_ATTACHMENT = {"kind": "hologram", "id": 5}
TEXT = {"type": "text", "text": "hi"}
CALL = {"type": "tool_use", "tool_call_id": "tc-0", "name": "f", "input": {}}
IMAGE = {"kind": "image", "id": "i", "width": 2, "height": 1, "bytes": ""}


def result(*content):
    return {"type": "tool_result", "tool_call_id": "tc-0", "content": list(content)}


def nested(block, levels):
    return result(nested(block, levels - 1)) if levels else block


def line(*content, **fields):
    message = {"role": "user", "content": list(content)}
    return msgspec.json.encode({"messages": [message], **fields})


def read(*content, **fields):
    return decode_blocks(line(*content, **fields))


@each_case("name", ["hologram", "", "Text", "unknown", "tool_call", "é"])
def test_a_type_that_nobody_knows_is_an_unknown_block(name):
    odd = {"type": name, "type_": 1, "text": None}
    [message] = read(TEXT, odd, TEXT).messages
    text = blocks.TextBlock("hi")
    assert message.content == [text, UnknownBlock(), text]


@each_case("name", ["hologram", "", "Image", "unknown", "text"])
def test_a_kind_that_nobody_knows_is_an_unknown_attachment(name):
    request = read(TEXT, attachments=[IMAGE, {"kind": name, "id": 5}])
    image = blocks.ImageAttachment("i", 2, 1, "")
    assert request.attachments == [image, UnknownAttachment()]


def test_an_unknown_block_is_found_in_what_a_tool_answered():
    [message] = read(CALL, result(TEXT, result(ODD), ODD), TEXT).messages
    call, answer, text = message.content
    assert isinstance(call, blocks.ToolUseBlock)
    assert bytes(call.input) == b"{}"
    assert text == blocks.TextBlock("hi")
    assert answer == blocks.ToolResultBlock(
        "tc-0",
        [text, blocks.ToolResultBlock("tc-0", [UnknownBlock()]), UnknownBlock()],
    )


@settings(max_examples=25)
@given(BLOCKS_REQUESTS, st.data())
def test_all_else_is_read_as_it_is_without_an_unknown_block(request_, data):
    document = msgspec.json.decode(encode(request_))
    document["attachments"].append(ODD_ATTACHMENT)
    for message in document["messages"]:
        message["content"].append(ODD)
    expected = BlocksRequest(
        **{
            **msgspec.structs.asdict(request_),
            "messages": [
                blocks.Message(each.role, [*each.content, UnknownBlock()])
                for each in request_.messages
            ],
            "attachments": [*request_.attachments, UnknownAttachment()],
        }
    )
    assert decode_blocks(msgspec.json.encode(document)) == expected


@settings(max_examples=25)
@given(BLOCKS_REQUESTS)
def test_reading_part_by_part_gives_what_reading_at_once_does(request_):
    assert decode_with_unknowns(encode(request_)) == request_


def test_every_field_there_is_is_read_part_by_part_too():
    assert decode_with_unknowns(examples.BLOCKS) == decode_blocks(examples.BLOCKS)


@each_case("odd", [ODD, result(ODD)])
@each_case(
    "faulty",
    [
        *({}, {"type": None}, {"type": 5}, {"type": "text"}, "text", None, [ODD]),
        *({"type": "text", "text": 5}, {"type": "image"}, {"type": "audio"}),
        *({"type": "tool_use", "tool_call_id": "", "name": ""}, {"type": "video"}),
        {"type": "tool_result", "content": [ODD]},
        {"type": "tool_result", "tool_call_id": 5, "content": [ODD]},
        {"type": "tool_result", "tool_call_id": "", "content": ODD},
        *(result({}), result(ODD, {"type": "text"}), result(result(ODD, None))),
    ],
)
def test_another_fault_beside_an_unknown_block_is_a_fault(odd, faulty):
    for content in ([odd, faulty], [faulty, odd]):
        with pytest.raises(InvalidFrameError):
            read(*content)


@each_case(
    "faulty",
    [
        *({}, {"kind": None}, {"kind": 5}, {"kind": "image", "id": "i"}, "image"),
        *({**IMAGE, "width": -1}, {**IMAGE, "bytes": None}, None, [ODD_ATTACHMENT]),
    ],
)
def test_another_fault_beside_an_unknown_attachment_is_a_fault(faulty):
    for attachments in ([ODD_ATTACHMENT, faulty], [faulty, ODD_ATTACHMENT]):
        with pytest.raises(InvalidFrameError):
            read(TEXT, attachments=attachments)


@each_case(
    "fields",
    [
        *({"id": None}, {"id": 5}, {"temperature": "1"}, {"top_k": 2**32}),
        *({"tools": [{}]}, {"tools": None}, {"attachments": None}, {"stop": "x"}),
    ],
)
def test_another_fault_anywhere_is_a_fault(fields):
    with pytest.raises(InvalidFrameError):
        read(ODD, **fields)


@each_case(
    "message",
    [
        *({"content": [ODD]}, {"role": "tool", "content": [ODD]}, {"role": "user"}),
        *({"role": "user", "content": "hi"}, {"role": None, "content": []}, None),
    ],
)
def test_a_turn_beside_an_unknown_block_is_whole(message):
    odd = {"role": "user", "content": [ODD]}
    for messages in ([odd, message], [message, odd]):
        with pytest.raises(InvalidFrameError):
            decode_blocks(msgspec.json.encode({"messages": messages}))


@each_case(
    "ending", [b"", b"]}]", b"]}]}]", b"]}],}", b']}],"x":}', b'],"role":"\xff"}]}']
)
def test_what_is_no_json_after_an_unknown_block_is_a_fault(ending):
    start = b'{"messages":[{"role":"user","content":[{"type":"odd"}'
    with pytest.raises(InvalidFrameError):
        decode_blocks(start + ending)


@pytest.mark.parametrize(
    ("member", "field"),
    [('"id":"a","id":"b"', "id"), ('"tools":[],"tools":[]', "tools")],
)
def test_a_field_that_stands_twice_beside_an_unknown_block_is_a_fault(member, field):
    frame = line(ODD).replace(b"}]}]}", f"}}]}}],{member}}}".encode())
    with pytest.raises(InvalidFrameError, match=f"^duplicate field `{field}`$"):
        decode_blocks(frame)


@pytest.mark.parametrize("levels", [0, 1, MAX_BLOCK_DEPTH - 1])
def test_an_unknown_block_is_found_as_deep_as_the_bound(levels):
    block = read(nested(ODD, levels)).messages[0].content[0]
    for _ in range(levels):
        assert isinstance(block, blocks.ToolResultBlock)
        [block] = block.content
    assert block == UnknownBlock()


@pytest.mark.parametrize("levels", [MAX_BLOCK_DEPTH, MAX_BLOCK_DEPTH + 1, 100])
def test_an_unknown_block_that_is_deeper_is_a_fault(levels):
    with pytest.raises(InvalidFrameError, match="^blocks are nested over 16 deep$"):
        read(nested(ODD, levels))


@each_case("beside", [[], [ODD], [nested(ODD, MAX_BLOCK_DEPTH - 1)]])
@each_case("levels", [MAX_BLOCK_DEPTH, MAX_BLOCK_DEPTH + 1, 100])
def test_what_everybody_knows_may_be_deeper(beside, levels):
    [block] = read(nested(TEXT, levels)).messages[0].content
    assert read(*beside, nested(TEXT, levels)).messages[0].content[-1] == block


@pytest.mark.parametrize("levels", [MAX_BLOCK_DEPTH, MAX_BLOCK_DEPTH + 1, 100])
def test_another_fault_that_is_deeper_is_told_as_what_it_is(levels):
    with pytest.raises(InvalidFrameError, match="missing required field `text`"):
        read(ODD, nested({"type": "text"}, levels))


@each_case(
    ("text", "is_tag"),
    [
        ("Invalid value 'x' - at `$.messages[0].content[0].type`", True),
        ("Invalid value 'x' - at `$.attachments[0].kind`", True),
        ("Invalid value 'x' - at `$.type`", True),
        ("Invalid enum value 'x' - at `$.messages[0].role`", False),
        ("Expected `str`, got `int` - at `$.response_format.type`", False),
        ("Object missing required field `type` - at `$.messages[0]`", False),
    ],
)
def test_a_complaint_about_a_type_is_told_from_others(text, is_tag):
    assert is_unknown_tag(msgspec.ValidationError(text)) is is_tag


def test_so_many_blocks_are_not_read_one_by_one(monkeypatch):
    monkeypatch.setattr("inferd.wire.unknown_types.MAX_BLOCKS", 3)
    assert len(read(ODD, TEXT, TEXT).messages[0].content) == 3
    with pytest.raises(InvalidFrameError, match="more than 3 blocks"):
        read(ODD, TEXT, TEXT, TEXT)
