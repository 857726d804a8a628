import msgspec
import pytest
from msgspec import UNSET, Raw

from inferd.errors import InvalidFrameError
from inferd.limits.protocol import U32_MAX
from inferd.wire import blocks
from inferd.wire.blocks import BlocksRequest, Message
from inferd.wire.codec import decode_blocks
from tests.cases import each_case
from tests.unit.wire import examples

TEXT = {"type": "text", "text": "hi"}
TURN = {"role": "user", "content": [TEXT]}
IMAGE = {"kind": "image", "id": "i", "width": 2, "height": 1, "bytes": "?"}
AUDIO = {"kind": "audio", "id": "s", "sample_rate": 16000, "bytes": ""}
VIDEO = {"kind": "video", "id": "v", "bytes": ""}
CALL = {"type": "tool_use", "tool_call_id": "tc-0", "name": "f", "input": None}
RESULT = {"type": "tool_result", "tool_call_id": "tc-0", "content": []}
TOOL = {"name": "f", "description": "", "input_schema": None}

U32_FIELDS = [
    *("top_k", "seed", "max_tokens", "min_tokens", "logprobs", "deadline_ms"),
    "min_n_ctx",
]
NUMBERS = [
    *("temperature", "top_p", "min_p", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty", "keep_alive_s"),
]
FLAGS = [
    *("thinking", "stream", "prefill_only", "progress", "translate", "strict"),
    *("describe", "speech_logprobs", "token_ids"),
]
OTHERS = [
    *("logit_bias", "stop", "stop_token_ids", "response_format", "tool_choice"),
    *("priority", "cache", "language", "timestamps", "model", "principal"),
    "via",
]


def read(**fields):
    return decode_blocks(msgspec.json.encode({"messages": [TURN], **fields}))


def refusal(**fields):
    with pytest.raises(InvalidFrameError) as caught:
        read(**fields)
    assert caught.value.message == f"decode: {caught.value}"
    return str(caught.value)


def test_every_field_is_read():
    request = decode_blocks(examples.BLOCKS)
    assert [message.role for message in request.conversation] == ["user"]
    assert [type(each).__struct_config__.tag for each in request.attachments] == [
        *("image", "audio", "video"),
    ]
    assert [tool.name for tool in request.tools] == ["f"]
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    options = [*U32_FIELDS, *NUMBERS, *FLAGS, *OTHERS]
    assert given.pop("input_tokens") is None
    assert set(given) == {"id", "messages", "attachments", "tools", *options}
    assert None not in given.values()
    assert (given["top_p"], given["logit_bias"]) == (1.0, {"5": -100.0})
    assert (given["stop"], given["stop_token_ids"]) == (["b"], [2])
    assert (given["priority"], given["cache"]) == (-10, "off")
    assert given["tool_choice"] == blocks.NamedTool("f")


def test_every_type_of_block_is_read():
    [message] = decode_blocks(examples.BLOCKS).conversation
    assert message.content == [
        blocks.TextBlock("hi"),
        blocks.ImageBlock("i"),
        blocks.AudioBlock("s"),
        blocks.VideoBlock("v"),
        blocks.ToolUseBlock("tc-0", "f", Raw(b'{"x":[1.0]}')),
        blocks.ToolResultBlock("tc-0", [blocks.TextBlock(""), blocks.ImageBlock("i")]),
    ]


def test_every_kind_of_attachment_is_read():
    assert read(attachments=[IMAGE, AUDIO, VIDEO]).attachments == [
        blocks.ImageAttachment("i", 2, 1, "?"),
        blocks.AudioAttachment("s", 16000, ""),
        blocks.VideoAttachment("v", ""),
    ]


def test_all_but_the_messages_may_be_left_out():
    assert read() == BlocksRequest(messages=[Message("user", [blocks.TextBlock("hi")])])
    request = read()
    assert (request.id, request.attachments, request.tools) == ("", [], [])
    for name in (*U32_FIELDS, *NUMBERS, *FLAGS, *OTHERS):
        assert getattr(request, name) is None
    with pytest.raises(InvalidFrameError, match="missing required field `messages`"):
        decode_blocks(b"{}")


@each_case("name", [*U32_FIELDS, *NUMBERS, *FLAGS, *OTHERS])
def test_null_is_as_good_as_nothing_for_an_option(name):
    assert read(**{name: None}) == read()


@each_case("name", ["id", "messages", "attachments", "tools"])
def test_null_is_no_text_and_no_list(name):
    assert f"`$.{name}`" in refusal(**{name: None})


@each_case("name", U32_FIELDS)
def test_an_unsigned_field_takes_what_32_bits_hold(name):
    assert [getattr(read(**{name: n}), name) for n in (0, U32_MAX)] == [0, U32_MAX]
    for outside in (-1, U32_MAX + 1, 1.0, True, "1"):
        assert f"`$.{name}`" in refusal(**{name: outside})


@each_case("name", NUMBERS)
def test_a_number_is_any_finite_one(name):
    assert [getattr(read(**{name: n}), name) for n in (-1e300, 7)] == [-1e300, 7.0]
    for wrong in ("1", True, [1]):
        assert f"`$.{name}`" in refusal(**{name: wrong})
    for beyond in (b"1e999", b"-1e999", b"NaN", b"Infinity", b"1" * 400):
        with pytest.raises(InvalidFrameError):
            decode_blocks(b'{"messages":[],"%s":%s}' % (name.encode(), beyond))


@each_case(
    ("name", "wrong"),
    [
        *((name, 1) for name in FLAGS),
        *(("stop", "text"), ("stop", [1]), ("stop_token_ids", [-1])),
        *(("stop_token_ids", [1.5]), ("stop_token_ids", [U32_MAX + 1])),
        *(("logit_bias", []), ("logit_bias", {"1": "2"}), ("logit_bias", {"1": None})),
        *(("priority", 1.5), ("priority", "1"), ("priority", True), ("cache", 1)),
        *(("response_format", "json"), ("response_format", {})),
        *(("tool_choice", 1), ("tool_choice", {}), ("tool_choice", {"name": 1})),
    ],
)
def test_another_type_is_refused_with_its_place(name, wrong):
    assert f"`$.{name}" in refusal(**{name: wrong})


@each_case("role", ["tool", "User", "", None, 1])
def test_there_is_no_fourth_role(role):
    place = "`$.messages[0].role`"
    assert place in refusal(messages=[{"role": role, "content": [TEXT]}])


@each_case("content", ["hi", None, {}, TEXT, ["hi"], [None], [[]]])
def test_content_is_a_list_of_blocks(content):
    text = refusal(messages=[{"role": "user", "content": content}])
    assert "`$.messages[0].content" in text


@pytest.mark.parametrize("block", [TEXT, CALL, RESULT], ids=lambda each: each["type"])
def test_a_block_has_all_its_fields(block):
    for field in block:
        rest = {name: value for name, value in block.items() if name != field}
        text = refusal(messages=[{"role": "user", "content": [rest]}])
        assert f"missing required field `{field}`" in text


@pytest.mark.parametrize(
    "attachment", [IMAGE, AUDIO, VIDEO], ids=lambda each: each["kind"]
)
def test_an_attachment_has_all_its_fields(attachment):
    for field in attachment:
        rest = {name: value for name, value in attachment.items() if name != field}
        assert f"missing required field `{field}`" in refusal(attachments=[rest])


@pytest.mark.parametrize("field", TOOL)
def test_a_tool_has_all_its_fields(field):
    rest = {name: value for name, value in TOOL.items() if name != field}
    assert f"missing required field `{field}`" in refusal(tools=[rest])


@each_case(
    "attachment",
    [
        *({**IMAGE, name: -1} for name in ("width", "height")),
        *({**IMAGE, name: U32_MAX + 1} for name in ("width", "height")),
        *({**AUDIO, "sample_rate": rate} for rate in (-1, 0.5, U32_MAX + 1, None)),
        *({**VIDEO, name: None} for name in ("id", "bytes", "kind")),
        *({**IMAGE, name: 5} for name in ("id", "bytes", "kind")),
    ],
)
def test_a_field_of_an_attachment_has_its_type(attachment):
    assert "`$.attachments[0]." in refusal(attachments=[attachment])


def test_what_is_meaning_is_not_checked_here():
    request = read(
        messages=[], attachments=[{**IMAGE, "id": ""}] * 40, tools=[TOOL] * 2
    )
    assert (request.messages, len(request.attachments)) == ([], 40)
    assert read(messages=[{"role": "user", "content": []}]).messages[0].content == []
    assert read(stop=[""] * 17, cache="odd", tool_choice="odd", priority=99).stop


@each_case(
    "written",
    [
        *(b"null", b"5", b"1.0e5", b'"\\u00e9"', b"[ 1,\t2 ]", b"1" * 5000, b"1e999"),
        *(b'{ "b" : 1 , "a" : 1 , "a" : 2 }', b"[" * 300 + b"]" * 300, b"-0"),
    ],
    ids=lambda written: written[:12].decode(),
)
def test_json_that_is_nobodys_business_is_kept_as_it_was_written(written):
    request = decode_blocks(
        b'{"messages":[{"role":"assistant","content":[{"type":"tool_use",'
        b'"tool_call_id":"","name":"","input": %s }]}],"tools":[{"name":"",'
        b'"description":"","input_schema":%s}],"response_format":'
        b'{"type":"json_schema","schema":%s}}' % ((written,) * 3)
    )
    [call] = request.conversation[0].content
    assert isinstance(call, blocks.ToolUseBlock)
    assert bytes(call.input) == bytes(request.tools[0].input_schema) == written
    assert request.response_format is not None
    assert isinstance(request.response_format.schema, Raw)
    assert bytes(request.response_format.schema) == written


def test_a_response_format_may_have_no_schema():
    request = read(response_format={"type": "regex", "pattern": "x"})
    assert request.response_format == blocks.ResponseFormat(type="regex", pattern="x")
    assert request.response_format.schema is UNSET
