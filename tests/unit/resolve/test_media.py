import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from msgspec.structs import replace

from inferd.backend.job import Media
from inferd.errors import InvalidRequestError
from inferd.resolve.media import audio_ms, media_in, open_attachment_ids
from inferd.resolve.turns import turns_of
from inferd.wire.blocks import (
    Attachment,
    AudioAttachment,
    AudioBlock,
    Block,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

IMAGE = ImageAttachment("i", 3, 2, "")
OTHER = ImageAttachment("j", 1, 1, "")
SOUND = AudioAttachment("s", 16000, "")
OPEN = AudioAttachment("o", 16000, open=True)
TABLE: list[Attachment] = [IMAGE, OTHER, SOUND, OPEN]

LEAVES: st.SearchStrategy[Block] = st.sampled_from(
    [
        *(TextBlock("t"), ImageBlock("i"), ImageBlock("j"), AudioBlock("s")),
        ToolUseBlock("tc-0", "f", Raw(b"{}")),
    ]
)
BLOCKS: st.SearchStrategy[Block] = st.recursive(
    LEAVES, lambda inner: st.builds(ToolResultBlock, st.just("tc-0"), st.lists(inner))
)


def asked(*blocks: Block) -> BlocksRequest:
    return BlocksRequest(messages=[Message("user", [*blocks])], attachments=TABLE)


def test_media_come_in_the_order_in_which_they_stand_as_often_as_they_do():
    blocks = (ImageBlock("j"), TextBlock("x"), AudioBlock("s"), ImageBlock("j"))
    assert [each.id for each in media_in(asked(*blocks))] == ["j", "s", "j"]


def test_an_image_has_as_many_bytes_as_its_pixels_take():
    [image] = media_in(asked(ImageBlock("i")))
    assert image == Media(kind="image", id="i", n_bytes=18, width=3, height=2)


def test_of_sound_nothing_is_here_yet():
    sound, more = media_in(asked(AudioBlock("s"), AudioBlock("o")))
    assert sound == Media(kind="audio", id="s", n_bytes=0, sample_rate=16000)
    assert more.is_open
    assert open_attachment_ids(TABLE) == ["o"]


@given(st.lists(BLOCKS, max_size=6))
def test_there_is_a_marker_for_each_of_the_media(blocks):
    request = asked(*blocks)
    texts = "".join(turn.text for turn in turns_of(request.conversation, "#"))
    assert texts.count("#") == len(media_in(request))


def test_sound_without_samples_is_refused():
    request = BlocksRequest(
        messages=[Message("user", [AudioBlock("x")])],
        attachments=[AudioAttachment("x", 0, "")],
    )
    with pytest.raises(InvalidRequestError, match='attachment "x": sample_rate 0'):
        media_in(request)


def test_the_time_of_all_sound_is_known():
    image, sound, other = media_in(
        asked(ImageBlock("i"), AudioBlock("s"), AudioBlock("s"))
    )
    assert (
        audio_ms([image, replace(sound, n_bytes=64000), replace(other, n_bytes=32000)])
        == 1500
    )
