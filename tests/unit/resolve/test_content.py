from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from inferd.errors import AttachmentsTooLargeError, InvalidRequestError
from inferd.limits.protocol import MAX_ATTACHMENT_BYTES, MAX_ATTACHMENTS
from inferd.resolve import content
from inferd.resolve.content import check_content, needs_of
from inferd.routing import (
    GENERATES,
    GENERATES_OR_TRANSCRIBES,
    GENERATES_V2_OR_TRANSCRIBES,
    HANDLES_AUDIO,
    HAS_REASONING,
    SERVES_V2,
    TAKES_AUDIO,
    TAKES_IMAGES,
    TAKES_TOOLS,
    TAKES_VIDEO,
)
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    Message,
    TextBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
    UnknownAttachment,
    UnknownBlock,
    VideoAttachment,
    VideoBlock,
)
from tests.cases import each_case

HI = TextBlock("hi")
IMAGE = ImageAttachment("i", 2, 1, "1234")
AUDIO = AudioAttachment("s", 16000, "56")
VIDEO = VideoAttachment("v", "789")
TOOL = Tool("f", "", Raw(b"{}"))
CALL = ToolUseBlock("tc-0", "f", Raw(b"{}"))
NEEDED = (GENERATES, SERVES_V2)


def result(*blocks):
    return ToolResultBlock("tc-0", [*blocks])


def asked(*blocks, **fields):
    return BlocksRequest(messages=[Message("user", [*blocks])], **fields)


def refusal(request):
    with pytest.raises(InvalidRequestError) as caught:
        check_content(request)
    return caught.value.message.removeprefix("invalid request: ")


# --- what is sound --------------------------------------------------------------------


@each_case(
    "request_",
    [
        asked(TextBlock("")),
        asked(result()),
        asked(CALL),
        asked(ToolUseBlock("", "not among the tools", Raw(b"5"))),
        asked(ToolResultBlock("to no call", [HI])),
        asked(HI, attachments=[IMAGE, AUDIO, VIDEO]),
        asked(ImageBlock("i"), result(ImageBlock("i")), attachments=[IMAGE]),
        asked(AudioBlock("s"), VideoBlock("v"), attachments=[VIDEO, AUDIO]),
        asked(HI, tools=[TOOL, Tool("g", "", Raw(b"{}"))]),
        asked(HI, attachments=[ImageAttachment("i", 0, 0, "<base64>")]),
        BlocksRequest(messages=[Message("assistant", [CALL]), Message("system", [HI])]),
    ],
)
def test_this_is_sound(request_):
    check_content(request_)


# --- what is not ------------------------------------------------------------------------


@each_case(
    ("attachments", "text"),
    [
        ([UnknownAttachment()], "attachments contain an unknown kind"),
        ([VideoAttachment("", "")], "attachments must have non-empty id"),
        ([IMAGE, IMAGE], "duplicate attachment id: i"),
        ([IMAGE, VideoAttachment("i", "")], "duplicate attachment id: i"),
        ([IMAGE, IMAGE, UnknownAttachment()], "duplicate attachment id: i"),
        (
            [VideoAttachment("", ""), UnknownAttachment()],
            "attachments must have non-empty id",
        ),
        ([IMAGE, UnknownAttachment(), IMAGE], "attachments contain an unknown kind"),
    ],
)
def test_attachments_are_checked_one_after_the_other(attachments, text):
    assert refusal(asked(HI, attachments=attachments)) == text


@each_case(
    ("block", "text"),
    [
        (ImageBlock("x"), 'references unknown attachment_id "x"'),
        (ImageBlock(""), 'references unknown attachment_id ""'),
        (AudioBlock('a"b'), 'references unknown attachment_id "a"b"'),
        (VideoBlock("x"), 'references unknown attachment_id "x"'),
        (
            ImageBlock("s"),
            'block expects image attachment but "s" is a different kind',
        ),
        (
            AudioBlock("v"),
            'block expects audio attachment but "v" is a different kind',
        ),
        (
            VideoBlock("i"),
            'block expects video attachment but "i" is a different kind',
        ),
        (UnknownBlock(), "uses unknown content-block type"),
    ],
)
def test_a_block_is_refused_with_its_place(block, text):
    media = [IMAGE, AUDIO, VIDEO]
    assert refusal(asked(block, attachments=media)) == f"messages[0].content[0] {text}"
    nested = asked(HI, CALL, result(HI, result(block)), attachments=media)
    place = "messages[0].content[2].content[1].content[0]"
    assert refusal(nested) == f"{place} {text}"


def test_the_first_of_two_faulty_blocks_is_told():
    request = BlocksRequest(
        messages=[
            Message("user", [HI]),
            Message("user", [HI, result(UnknownBlock()), ImageBlock("x")]),
            Message("user", []),
        ]
    )
    assert refusal(request) == (
        "messages[1].content[1].content[0] uses unknown content-block type"
    )


def test_the_order_of_the_checks_is_that_of_the_wire():
    turn, odd = Message("user", [HI]), Message("user", [ImageBlock("x")])
    request = BlocksRequest(
        messages=[], attachments=[UnknownAttachment()] * 33, tools=[TOOL, TOOL]
    )
    steps: list[tuple[str, dict[str, Any]]] = [
        ("messages must not be empty", {"messages": [Message("user", []), odd]}),
        (
            "attachments has 33 entries, at most 32 are allowed",
            {"attachments": [UnknownAttachment()]},
        ),
        ("attachments contain an unknown kind", {"attachments": [IMAGE]}),
        ("duplicate tool name: f", {"tools": [TOOL]}),
        ("messages[0].content must not be empty", {"messages": [turn, odd]}),
        (
            'messages[1].content[0] references unknown attachment_id "x"',
            {"messages": [turn]},
        ),
    ]
    for text, mended in steps:
        assert refusal(request) == text
        request = replace(request, **mended)
    check_content(request)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "must not be empty"),
        ("n" * 257, "has 257 characters, at most 256 are allowed"),
    ],
)
def test_a_tool_has_a_name_of_sane_length(name, fault):
    tools = [TOOL, Tool(name, "", Raw(b"{}"))]
    assert refusal(asked(HI, tools=tools)) == f"tools[1].name {fault}"
    check_content(asked(HI, tools=[Tool("ü" * 256, "", Raw(b"{}"))]))


def test_an_empty_turn_is_refused_with_its_place():
    turns = [Message("user", [HI]), Message("user", [])]
    assert refusal(BlocksRequest(messages=turns)) == (
        "messages[1].content must not be empty"
    )


# --- by descriptor ----------------------------------------------------------------------


def test_an_attachment_may_come_by_one_of_the_descriptors():
    media = [ImageAttachment("i", 2, 1, fd=1), AudioAttachment("s", 16000, fd=0)]
    check_content(asked(HI, attachments=media), n_fds=2)


@pytest.mark.parametrize(
    ("each", "n_fds", "fault"),
    [
        (
            ImageAttachment("i", 2, 1, bytes="", fd=0),
            1,
            ": bytes and fd exclude each other",
        ),
        (
            AudioAttachment("s", 16000, fd=2),
            2,
            ".fd 2 not among the descriptors that came with the request, which are 2",
        ),
        (
            AudioAttachment("s", 16000, fd=0),
            0,
            ".fd 0 not among the descriptors that came with the request, which are 0",
        ),
    ],
)
def test_an_attachment_comes_one_way_and_by_what_is_there(each, n_fds, fault):
    with pytest.raises(InvalidRequestError) as caught:
        check_content(asked(HI, attachments=[VIDEO, each]), n_fds)
    assert caught.value.message == f"invalid request: attachments[1]{fault}"


# --- how much ---------------------------------------------------------------------------


def test_the_bounds_are_those_of_the_wire():
    assert (MAX_ATTACHMENTS, MAX_ATTACHMENT_BYTES) == (32, 128 * 1024 * 1024)


def test_a_request_has_32_attachments_at_most():
    media = [VideoAttachment(str(index), "") for index in range(33)]
    check_content(asked(HI, attachments=media[:32]))
    assert refusal(asked(HI, attachments=media)) == (
        "attachments has 33 entries, at most 32 are allowed"
    )


def test_a_request_has_so_many_blocks_at_most_nested_ones_among_them(monkeypatch):
    monkeypatch.setattr(content, "MAX_BLOCKS", 4)
    check_content(asked(HI, result(HI, HI)))
    assert refusal(asked(HI, result(HI, HI), HI)) == "messages have more than 4 blocks"


def test_attachments_are_charged_together_whether_or_not_they_are_used(monkeypatch):
    media = [IMAGE, AUDIO, VIDEO]
    monkeypatch.setattr(content, "MAX_ATTACHMENT_BYTES", 9)
    check_content(asked(HI, attachments=media))
    monkeypatch.setattr(content, "MAX_ATTACHMENT_BYTES", 8)
    with pytest.raises(AttachmentsTooLargeError) as caught:
        check_content(asked(HI, attachments=media))
    assert caught.value.code == "frame_too_large"
    assert not caught.value.closes_connection
    assert caught.value.message == ("attachments have 9 bytes, at most 8 are allowed")


# --- what it asks of a backend ------------------------------------------------------------


@each_case(
    ("request_", "more"),
    [
        (asked(HI), ()),
        (asked(HI, thinking=False), ()),
        (asked(HI, thinking=True), (HAS_REASONING,)),
        (asked(HI, tools=[TOOL]), (TAKES_TOOLS,)),
        (asked(HI, tools=[TOOL], tool_choice="none"), (TAKES_TOOLS,)),
        (asked(HI, CALL), (TAKES_TOOLS,)),
        (asked(result()), (TAKES_TOOLS,)),
        (asked(HI, attachments=[IMAGE]), (TAKES_IMAGES,)),
        (asked(HI, attachments=[AUDIO, AUDIO]), (TAKES_AUDIO,)),
        (asked(HI, attachments=[VIDEO]), (TAKES_VIDEO,)),
        (
            asked(CALL, attachments=[VIDEO, AUDIO, IMAGE], thinking=True),
            (TAKES_IMAGES, TAKES_AUDIO, TAKES_VIDEO, TAKES_TOOLS, HAS_REASONING),
        ),
        (
            BlocksRequest(messages=[Message("user", [HI]), Message("user", [CALL])]),
            (TAKES_TOOLS,),
        ),
    ],
)
def test_a_request_needs_what_is_in_it(request_, more):
    assert needs_of(request_) == (*NEEDED, *more)


def test_a_recording_needs_less():
    request_ = asked(HI, attachments=[AUDIO, VIDEO])
    needs = needs_of(request_, is_speech=True)
    assert needs == (
        GENERATES_OR_TRANSCRIBES,
        GENERATES_V2_OR_TRANSCRIBES,
        HANDLES_AUDIO,
        TAKES_VIDEO,
    )
