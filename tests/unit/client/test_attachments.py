import os
import sys

import pytest
from PIL import Image

from inferd.client.attachments import Attachments
from inferd.client.media.errors import MissingExtraError
from inferd.client.media.sound import SoundError
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    ImageAttachment,
    ImageBlock,
)
from tests.fakes.recordings import samples_in, tone, wav


@pytest.fixture
def files(tmp_path):
    """A picture and a sound."""
    Image.new("RGB", (2, 1), "red").save(tmp_path / "a.png")
    (tmp_path / "a.wav").write_bytes(wav(tone(0, 100, 16_000)))
    return tmp_path


def test_files_become_blocks_a_table_and_descriptors_in_order(files):
    with Attachments() as media:
        blocks = [media.picture(files / "a.png"), media.sound(files / "a.wav")]
        first, second = media.descriptors
        for fd in media.descriptors:
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"other", 0)
        assert os.pread(first, 99, 0) == b"\xff\0\0" * 2
        samples = samples_in([os.pread(second, 999, 0)])
    assert blocks == [ImageBlock("1"), AudioBlock("2")]
    assert media.table == [
        ImageAttachment(id="1", width=2, height=1, fd=0),
        AudioAttachment(id="2", sample_rate=16_000, fd=1),
    ]
    assert samples == pytest.approx(tone(0, 100, 16_000), abs=1e-4)


def test_descriptors_are_closed(files):
    with Attachments() as media:
        media.picture(files / "a.png")
        [fd] = media.descriptors
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_that_cannot_be_used_attaches_nothing(files):
    (files / "a.wav").write_bytes(b"nonsense")
    with Attachments() as media:
        with pytest.raises(SoundError):
            media.sound(files / "a.wav")
        assert (media.table, media.descriptors) == ([], [])


def test_without_the_library_it_is_said_what_to_install(files, monkeypatch):
    monkeypatch.delitem(sys.modules, "inferd.client.media.pictures", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with Attachments() as media, pytest.raises(MissingExtraError, match="pip install"):
        media.picture(files / "a.png")
