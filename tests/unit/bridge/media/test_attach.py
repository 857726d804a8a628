import io
import os

import pytest
from PIL import Image

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.anthropic.count import CountAnswer
from inferd.bridge.media.attach import attached
from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.translation.media import EncodedMedium
from inferd.bridge.translation.question import Question
from inferd.config.bridge import BridgeSettings
from inferd.wire.blocks import BlocksRequest, ImageAttachment, ImageBlock, Message
from tests.fakes.fds import content_of

pytestmark = pytest.mark.slow


def png(width: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 1), "red").save(file, "PNG")
    return file.getvalue()


def question(*files: bytes) -> Question:
    names = [f"m{number}" for number in range(len(files))]
    media = [
        EncodedMedium("picture", data, f"images[{name}]", name)
        for name, data in zip(names, files, strict=True)
    ]
    message = Message("user", [ImageBlock(name) for name in names])
    request = BlocksRequest(id="r", messages=[message])
    return Question(request, CountAnswer(), media=media)


@pytest.fixture
def decoders():
    made = MediaDecoders(BridgeSettings(), BridgeLog(list[bytes]().append))
    yield made
    made.close()


async def test_media_become_attachments_in_their_order(decoders):
    async with attached(question(png(1), png(2)), decoders, "a") as asked:
        assert isinstance(asked.request, BlocksRequest)
        assert asked.request.attachments == [
            ImageAttachment(id="m0", width=1, height=1, fd=0),
            ImageAttachment(id="m1", width=2, height=1, fd=1),
        ]
        reds = [content_of(fd) for fd in asked.descriptors]
        assert reds == [b"\xff\0\0", b"\xff\0\0" * 2]
        kept = asked.descriptors
    for fd in kept:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert decoders.n_held_bytes == 0


async def test_one_that_cannot_be_decoded_gives_all_back(decoders):
    with pytest.raises(BridgeError, match=r"images\[m1\]"):
        async with attached(question(png(1), b"no"), decoders, "a"):
            pass
    assert decoders.n_held_bytes == 0


async def test_without_decoders_media_are_refused():
    with pytest.raises(BridgeError, match="not served"):
        async with attached(question(png(1)), None, "a"):
            pass
