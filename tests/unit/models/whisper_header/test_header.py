import io
import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from inferd.models.file_error import ModelFileError
from inferd.models.ggml_types import BLOCKS
from inferd.models.whisper_header.header import WhisperHeader, read_header
from tests.cases import each_case
from tests.unit.worker.whisper.models import SMALL, model_bytes, texts, write_outline

SOUND = model_bytes()
END_OF_NUMBERS = 4 + 4 * len(WhisperHeader._fields)
CHUNK_BYTES = 2**20
TEXT_BYTES = 1024


class Chunks(io.BytesIO):
    """A file that is read in chunks of no more than a mebibyte, and not over and over."""

    n_read = 0

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert 0 <= size <= CHUNK_BYTES
        data = super().read(size)
        self.n_read += len(data)
        return data


def read(content: bytes) -> WhisperHeader:
    file = Chunks(content)
    try:
        return read_header(file, len(content))
    finally:
        assert file.n_read <= 2 * len(content) + CHUNK_BYTES


def refusal(content: bytes) -> str:
    with pytest.raises(ModelFileError) as caught:
        read(content)
    return str(caught.value)


def test_a_model_is_what_its_file_says():
    assert read(SOUND) == SMALL
    assert not SMALL.is_multilingual
    assert (SMALL.n_languages, SMALL.weights_type) == (1, 1)


@pytest.mark.parametrize(("n_vocab", "n_languages"), [(51_865, 99), (51_866, 100)])
def test_a_larger_vocabulary_is_for_many_languages(n_vocab, n_languages):
    header = read(model_bytes(SMALL._replace(n_vocab=n_vocab)))
    assert (header.is_multilingual, header.n_languages) == (True, n_languages)


@each_case(
    ("field", "value", "fault"),
    [
        ("n_vocab", 50_257, "a vocabulary of 50257 tokens"),
        ("n_vocab", -1, "a vocabulary of -1 tokens"),
        ("n_audio_ctx", 3000, "contexts of 3000 and 448"),
        ("n_text_ctx", 0, "contexts of 1500 and 0"),
        ("n_mels", 81, "81 mel bands"),
        ("kind", 0, "its file type 0 is"),
        ("kind", 4, "its file type 4 is"),
        ("kind", 7, "a layer of size 8 does not divide into blocks of 32"),
        ("n_audio_state", 0, "1 layers of size 0 "),
        ("n_text_layer", 2**31 - 1, f"{2**31 - 1} layers of size 8 "),
        ("n_audio_head", 3, "size 8 does not divide by 3 heads"),
        ("n_text_head", 0, "size 8 does not divide by 0 heads"),
        ("n_text_state", 16, "its encoder has 8 numbers per state and its decoder 16"),
    ],
)
def test_a_number_that_no_model_has_is_refused(field, value, fault):
    content = struct.pack("<11i", *SMALL._replace(**{field: value}))
    assert fault in refusal(SOUND[:4] + content + SOUND[END_OF_NUMBERS:])


def test_filters_of_another_size_are_refused():
    other = struct.pack("<2i", 80, 512)
    content = SOUND[:END_OF_NUMBERS] + other + SOUND[END_OF_NUMBERS + 8 :]
    assert refusal(content) == "its mel filters are 80 by 512, not 80 by 201"


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_filters_that_are_no_numbers_are_refused(number):
    last = END_OF_NUMBERS + 8 + 4 * (80 * 201 - 1)
    content = SOUND[:last] + struct.pack("<f", number) + SOUND[last + 4 :]
    assert refusal(content) == "its mel filters are not all finite"


@pytest.mark.parametrize("words", [[], texts(51_865)])
def test_a_vocabulary_has_a_number_of_tokens_that_fits(words):
    assert "1 to 51864 are allowed" in refusal(model_bytes(words=words))


def test_a_vocabulary_without_a_space_is_refused():
    words = [word for word in texts(300) if word != b" "]
    assert (
        refusal(model_bytes(words=words)) == "its vocabulary has no token for a space"
    )


def test_a_token_as_long_as_a_book_is_refused():
    longest = b"x" * TEXT_BYTES
    assert read(model_bytes(words=[longest, b" "])) == SMALL
    assert "a token of 1025 bytes" in refusal(model_bytes(words=[longest + b"x", b" "]))


def test_a_file_that_was_cut_short_is_refused_wherever_that_was():
    for size in [*range(60), *range(60, len(SOUND), 40_009), len(SOUND) - 1]:
        assert refusal(SOUND[:size])


def test_a_file_without_its_last_tensor_is_refused():
    last = SOUND.rindex(b"decoder.blocks.0.cross_attn.out.bias") - 3 * 4 - 4
    assert refusal(SOUND[:last]) == (
        "its tensor decoder.blocks.0.cross_attn.out.bias is missing"
    )


def test_a_tensor_that_is_there_twice_is_refused():
    last = SOUND.rindex(b"decoder.blocks.0.cross_attn.out.bias") - 3 * 4 - 4
    assert "unknown or duplicate" in refusal(SOUND + SOUND[last:])


@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_tensor_of_another_shape_or_type_is_refused(place):
    name = b"decoder.blocks.0.cross_attn.out.bias"
    first = SOUND.rindex(name) - 3 * 4 - 4
    changed = bytearray(SOUND)
    struct.pack_into("<i", changed, first + 4 * place, 9)
    assert refusal(bytes(changed))


@each_case(("n_dimensions", "n_name"), [(0, 9), (5, 9), (1, 0), (1, 64)])
def test_a_tensor_without_a_size_or_a_name_that_fits_is_none(n_dimensions, n_name):
    head = struct.pack("<3i", n_dimensions, n_name, 0)
    assert refusal(SOUND + head + bytes(999)) == (
        f"it has a tensor with {n_dimensions} dimensions and a name of {n_name} bytes, "
        "1 to 4 and 1 to 63 are allowed"
    )


@pytest.mark.parametrize(
    ("kind", "n_numbers", "n_bytes"),
    [
        (1, 1, 2),
        (2, 32, 18),
        (3, 32, 20),
        (7, 32, 34),
        (8, 32, 22),
        (9, 32, 24),
        (10, 256, 84),
        (11, 256, 110),
        (12, 256, 144),
        (13, 256, 176),
        (14, 256, 210),
        (2009, 32, 24),
    ],
)
def test_a_quantised_model_has_large_tensors_of_its_kind(
    kind, n_numbers, n_bytes, tmp_path
):
    header = SMALL._replace(kind=kind, n_audio_state=256, n_text_state=256)
    assert BLOCKS[header.weights_type] == (n_numbers, n_bytes)
    path = write_outline(tmp_path / "model", header)
    size = path.stat().st_size
    with path.open("rb") as file:
        assert read_header(file, size) == header
    with path.open("rb") as file, pytest.raises(ModelFileError, match="truncated"):
        read_header(file, size - 1)


@settings(max_examples=60)
@given(st.binary(max_size=200), st.integers(0, 2000))
def test_random_bytes_are_a_model_or_refused(noise, place):
    content = SOUND[:place] + noise + SOUND[place + len(noise) :]
    with suppress(ModelFileError):
        assert read(content).n_vocab == SMALL.n_vocab


def test_what_is_no_model_at_all_is_refused():
    for content in (b"", b"lmg", b"<html>" * 99):
        assert refusal(content) == "not a whisper.cpp model file"
