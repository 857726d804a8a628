import itertools
import sys
from contextlib import nullcontext

import pytest
from hypothesis import given, settings, strategies as st

from inferd.client.media.errors import MissingExtraError
from inferd.client.media.sound import (
    BLOCK_BYTES,
    SoundError,
    align_samples,
    convert,
    decode,
    split_blocks,
)
from tests.fakes.recordings import samples_in, tone, wav


def breaking(*pieces):
    yield from pieces
    raise SoundError("breaks off")


def given_before(blocks):
    before: list[bytes] = []
    with pytest.raises(SoundError):
        before.extend(blocks)
    return before


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=4))
def test_blocks_have_one_size_and_nothing_is_lost(sizes):
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    blocks = list(split_blocks(pieces))
    assert b"".join(blocks) == b"".join(pieces)
    assert all(len(block) == BLOCK_BYTES for block in blocks[:-1])
    assert all(blocks)


def test_a_block_is_yielded_before_more_is_read():
    def endless():
        for number in itertools.count():
            assert number < 1, "too much is read"
            yield bytes(BLOCK_BYTES)

    assert len(next(split_blocks(endless()))) == BLOCK_BYTES


def test_samples_before_an_error_are_yielded():
    assert given_before(split_blocks(breaking(b"ab", b"c"))) == [b"abc"]
    assert given_before(split_blocks(breaking())) == []


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=9)), st.sampled_from([2, 4]))
def test_samples_are_aligned_for_any_blocks(blocks, n_bytes):
    data = b"".join(blocks)
    whole: list[bytes] = []
    with pytest.raises(SoundError) if len(data) % n_bytes else nullcontext():
        whole.extend(align_samples(blocks, n_bytes))
    assert all(len(block) % n_bytes == 0 for block in whole)
    assert b"".join(whole) == data[: len(data) - len(data) % n_bytes]


def test_an_empty_block_stays_one():
    assert list(convert([b"", b"\0" * 8, b""], "f32le", 16_000)) == [
        b"",
        b"\0" * 8,
        b"",
    ]


def test_samples_split_anywhere_are_converted():
    quarter = b"\0\x20" * 800
    blocks = [quarter[:301], quarter[301:]]
    samples = samples_in(list(convert(blocks, "s16le", 8000)))
    assert len(samples) == 1600
    assert samples[100:1500] == pytest.approx([0.25] * 1400, abs=1e-3)


def test_a_file_is_decoded_in_blocks(tmp_path):
    path = tmp_path / "a.wav"
    path.write_bytes(wav(tone(0, 2 * BLOCK_BYTES // 4 + 7, 16_000)))
    assert [len(each) for each in decode(path)] == [BLOCK_BYTES, BLOCK_BYTES, 28]


@pytest.fixture
def no_library(monkeypatch):
    """A machine on which PyAV is not installed."""
    monkeypatch.delitem(sys.modules, "inferd.client.media.audio_decoder", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)


def test_without_the_library_it_is_said_what_to_install(no_library, tmp_path):
    words = r"needs the package av; "
    with pytest.raises(MissingExtraError, match=words):
        decode(tmp_path / "a.wav")
    with pytest.raises(MissingExtraError, match=words):
        convert([], "s16le", 16_000)


def test_samples_in_the_target_format_need_no_library(no_library):
    assert list(convert([b"\0" * 8], "f32le", 16_000)) == [b"\0" * 8]
