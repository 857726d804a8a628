import io

import pytest
from PIL import Image

from inferd.media_decoder import decode
from inferd.media_decoder.decode import decode_into
from inferd.media_decoder.messages import DecodeMedium, DecoderReport
from tests.fakes.fds import content_of, memfd

PICTURE = DecodeMedium(kind="picture", max_pixels=100, max_bytes=300, max_cpu_s=1)


def png() -> io.BytesIO:
    file = io.BytesIO()
    Image.new("RGB", (2, 1), "red").save(file, "PNG")
    file.seek(0)
    return file


def test_a_picture_is_written_and_its_size_told():
    target = memfd(seals=0)
    assert decode_into(PICTURE, png(), target) == DecoderReport(width=2, height=1)
    assert content_of(target) == b"\xff\0\0" * 2


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (MemoryError(), "too much memory"),
        (ZeroDivisionError("secret"), "fails with ZeroDivisionError"),
    ],
)
def test_what_a_library_raises_is_told_without_its_words(monkeypatch, raised, text):
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(decode, "decode_picture", fail)
    report = decode_into(PICTURE, png(), -1)
    assert text in report.fault
    assert "secret" not in report.fault
