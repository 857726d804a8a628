import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st

from inferd.backend.job import Media
from inferd.limits.worker import (
    MEDIA_AUDIO_S,
    MEDIA_PIXELS,
    MEDIA_SIDE_PIXELS,
    MEDIA_SIDE_RATIO,
)
from inferd.worker.backend import RefusedError
from inferd.worker.llama.multimodal.media import (
    MediaData,
    Modalities,
    placeholder_tokens,
    read_medium,
)
from tests.cases import each_case

RATE = 16_000
SENSES = Modalities(vision=True, sample_rate=RATE)


def image(width: int = 2, height: int = 3, **fields) -> Media:
    chosen = {"n_bytes": width * height * 3, **fields}
    return Media(kind="image", id="a", width=width, height=height, **chosen)


def audio(seconds: float = 1.0, **fields) -> Media:
    chosen = {"n_bytes": int(seconds * RATE) * 4, "sample_rate": RATE, **fields}
    return Media(kind="audio", id="a", **chosen)


@pytest.fixture
def fd() -> Iterator[int]:
    fd = os.memfd_create("medium")
    yield fd
    os.close(fd)


def sent(fd: int, media: Media, data: bytes, senses: Modalities = SENSES) -> MediaData:
    os.pwrite(fd, data, 0)
    return read_medium(media, fd, senses)


def refused(media: Media, senses: Modalities = SENSES) -> str:
    with pytest.raises(RefusedError) as caught:
        read_medium(media, -1, senses)  # before anything is read
    return str(caught.value)


def test_pixels_are_read_as_they_were_sent(fd):
    medium = sent(fd, image(), bytes(range(18)) + b"and more")
    assert medium.data.tolist() == list(range(18))
    assert medium.name == 'attachment "a"'


def test_media_are_told_apart_by_kind_shape_and_bytes(fd):
    others = [
        sent(fd, image(2, 3), bytes(18)),
        sent(fd, image(3, 2), bytes(18)),
        sent(fd, image(2, 3), bytes(17) + b"\1"),
        sent(fd, audio(0.5), bytes(RATE * 2)),
        sent(fd, audio(0.5, sample_rate=8000), bytes(RATE * 2), Modalities(True, 8000)),
    ]
    assert len({each.digest for each in others}) == len(others)
    assert sent(fd, image(2, 3), bytes(18)).digest == others[0].digest


def test_a_file_that_is_shorter_than_it_was_said_to_be_is_refused(fd):
    with pytest.raises(RefusedError, match="its file ends after 17 of 18 bytes"):
        sent(fd, image(), bytes(17))


def test_kinds_that_the_model_does_not_accept_are_refused():
    assert "takes no images" in refused(image(), Modalities(sample_rate=RATE))
    assert "takes no audio" in refused(audio(), Modalities(vision=True))
    assert "takes no open audio" in refused(audio(is_open=True))


def test_another_sample_rate_is_refused_with_both():
    assert refused(audio(sample_rate=44_100)) == (
        'attachment "a": a sample rate of 44100 Hz, this model takes 16000 Hz'
    )


@each_case(
    ("width", "height"),
    [
        (0, 0),
        (0, 5),
        (1, MEDIA_SIDE_RATIO + 1),
        (MEDIA_SIDE_PIXELS + 1, MEDIA_SIDE_PIXELS // 2),
        (MEDIA_SIDE_PIXELS, MEDIA_PIXELS // MEDIA_SIDE_PIXELS + 1),
    ],
)
def test_pictures_that_are_too_large_or_too_narrow_are_refused(width, height):
    for media in (image(width, height), image(height, width)):
        assert f"{media.width} x {media.height} pixels" in refused(media)


def test_a_picture_with_more_or_less_bytes_than_pixels_is_refused():
    assert "17 bytes, 2 x 3 pixels have 18" in refused(image(n_bytes=17))
    assert "19 bytes" in refused(image(n_bytes=19))


def test_sound_that_is_too_short_or_too_long_is_refused():
    assert "0.05 s of audio, 0.1 to 600 s" in refused(audio(0.05))
    assert "of audio" in refused(audio(MEDIA_AUDIO_S + 1))
    assert "not a multiple of a sample" in refused(audio(n_bytes=RATE * 4 + 1))


@pytest.mark.parametrize(
    ("value", "fault"),
    [(np.nan, "not finite"), (-np.inf, "not finite"), (32_769, "too large")],
)
def test_samples_that_are_no_numbers_are_refused_by_their_place(fd, value, fault):
    samples = np.zeros(RATE, np.float32)
    samples[[7, 9]] = value
    with pytest.raises(RefusedError, match=f'"a": sample 7 is {fault}'):
        sent(fd, audio(), samples.tobytes())


@given(st.binary(max_size=32), st.lists(st.integers(0, 40), max_size=5))
def test_made_up_tokens_are_no_tokens_and_always_the_same(digest, sizes):
    parts = placeholder_tokens(digest, sizes)
    assert [len(part) for part in parts] == sizes
    assert all(-(2**31) <= token < 0 for part in parts for token in part)
    assert placeholder_tokens(digest, sizes) == parts


def test_other_media_have_other_tokens_from_the_first_on():
    one, other = (placeholder_tokens(digest, [16])[0] for digest in (b"a", b"b"))
    assert one[0] != other[0]
    assert len({*one, *other}) == 32
