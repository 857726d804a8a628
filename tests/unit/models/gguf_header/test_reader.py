import io

import pytest
from hypothesis import given, strategies as st

from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import read_header
from inferd.models.gguf_header.reader import Reader, read_name, refuse_over
from tests.fakes.gguf_bytes import ARRAY, TEXT, U16, array, gguf, pair, sound, text

SOUND = sound()


@given(st.lists(st.binary(max_size=30), max_size=200), st.integers(20, 60))
def test_texts_are_passed_over_wherever_a_chunk_ends(texts, n_chunk_bytes):
    words = array(TEXT, len(texts), b"".join(map(text, texts)))
    pairs = [pair(b"w", ARRAY, words), pair(b"split.count", U16, b"\7\0")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.models.gguf_header.reader._CHUNK_BYTES", n_chunk_bytes)
        content = gguf(pairs=pairs)
        assert read_header(io.BytesIO(content), len(content)).n_parts == 7


def test_a_file_that_shrinks_meanwhile_is_refused():
    with pytest.raises(ModelFileError, match="shorter"):
        read_header(io.BytesIO(SOUND[:50]), len(SOUND))


def reader(content: bytes) -> Reader:
    return Reader(io.BytesIO(content), len(content))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.integers(20, 60))
def test_a_text_is_measured_and_then_read(texts, n_chunk_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.models.gguf_header.reader._CHUNK_BYTES", n_chunk_bytes)
        source = reader(b"".join(map(text, texts)))
        for each in texts:
            assert source.peek() == len(each)
            assert read_name(source, 20) == each


def test_nothing_is_read_beyond_the_end():
    for read in (Reader.peek, lambda source: source.take(3), lambda it: it.skip(3)):
        with pytest.raises(ModelFileError, match="it ends after 2 bytes"):
            read(reader(b"ab"))


def test_a_bound_may_be_reached():
    refuse_over("keys", 5, 5)
    with pytest.raises(ModelFileError, match="it has 6 keys, over 5"):
        refuse_over("keys", 6, 5)
