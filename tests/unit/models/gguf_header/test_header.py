import io
import struct
import time
from contextlib import suppress

import gguf as reference
import pytest
from hypothesis import given, strategies as st

from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import GgufHeader, read_header
from tests.cases import each_case
from tests.fakes.gguf_bytes import (
    ARRAY,
    F32,
    Q8_0,
    TEXT,
    U16,
    U32,
    array,
    gguf,
    pair,
    sound,
    tensor,
    text,
)
from tests.model.tiny import write_tiny_bert, write_tiny_model

SOUND = sound()
HUGE = 2**64 - 1


def read(content: bytes) -> GgufHeader:
    return read_header(io.BytesIO(content), len(content))


def alignment(value: int) -> bytes:
    return pair(b"general.alignment", U32, struct.pack("<I", value))


def test_a_sound_file_tells_its_tensors_and_parts():
    header = GgufHeader(n_tensors=2, architecture=b"llama", n_texts=40)
    assert read(SOUND) == header
    parts = pair(b"split.count", U16, struct.pack("<H", 3))
    assert read(gguf(pairs=[parts])).n_parts == 3


def test_tokens_are_counted_among_the_texts():
    words = array(TEXT, 3, 3 * text(b"word"))
    tokens = pair(b"tokenizer.ggml.tokens", ARRAY, words)
    merges = pair(b"tokenizer.ggml.merges", ARRAY, array(TEXT, 1, text(b"w o")))
    header = read(gguf(pairs=[tokens, merges]))
    assert (header.n_tokens, header.n_texts) == (3, 4)


def test_the_name_of_an_architecture_is_no_novel():
    name = pair(b"general.architecture", TEXT, text(b"x" * 65))
    with pytest.raises(ModelFileError, match="a name of 65 bytes, over 64"):
        read(gguf(pairs=[name]))


@pytest.mark.parametrize("write", [write_tiny_model, write_tiny_bert])
def test_converted_models_pass_the_rules(write, tmp_path):
    content = write(tmp_path / "m.gguf").read_bytes()
    assert read(content).n_tensors == len(
        reference.GGUFReader(tmp_path / "m.gguf").tensors
    )


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_in_use_are_read(version):
    assert read(b"GGUF" + struct.pack("<IQQ", version, 0, 0)) == GgufHeader(0, 0)


def test_every_file_that_ends_too_soon_is_refused():
    for n_bytes in range(len(SOUND)):
        with pytest.raises(ModelFileError):
            read(SOUND[:n_bytes])


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=8)
)
def test_no_mutation_does_more_than_be_refused(changes):
    content = bytearray(SOUND)
    for place, value in changes:
        content[place] = value
    with suppress(ModelFileError):
        assert read(bytes(content)).n_tensors <= len(SOUND)


@given(
    st.integers(4, len(SOUND) - 8),
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, HUGE]),
)
def test_no_number_of_any_size_does_more_than_be_refused(place, number):
    content = SOUND[:place] + struct.pack("<Q", number) + SOUND[place + 8 :]
    with suppress(ModelFileError):
        assert read(content).n_tensors <= len(SOUND)


@each_case(
    ("content", "reason"),
    [
        (b"", "not a GGUF file$"),
        (b"GGML" + bytes(20), "not a GGUF file$"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not supported"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648 is not"),
        (b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0), f"it has {HUGE} tensors, over"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE), f"it has {HUGE} keys, over"),
        (gguf(pairs=[pair(b"k" * 65536, U16, b"xx")]), "a name of 65536 bytes"),
        (gguf(pairs=[pair(b"k", U16, b"xx")] * 2), "the key 'k' twice"),
        (gguf(pairs=[pair(b"k", 13, b"")]), "value of type 13"),
        (gguf(pairs=[pair(b"k", TEXT, struct.pack("<Q", 2**27))]), "text of 134217728"),
        (gguf(pairs=[pair(b"k", TEXT, struct.pack("<Q", 99))]), "amid its header"),
        (gguf(pairs=[pair(b"k", ARRAY, array(U16, 2**60, b""))]), "amid its header"),
        (gguf(pairs=[pair(b"k", ARRAY, array(ARRAY, 1, b""))]), "value of type 9"),
        (gguf(pairs=[pair(b"k", ARRAY, array(TEXT, 2**40, b""))]), "texts in arrays"),
        (gguf(pairs=[pair(b"split.count", U32, bytes(4))]), "value of type 4"),
        (gguf(pairs=[alignment(0)]), "alignment of 0"),
        (gguf(pairs=[alignment(48)]), "alignment of 48"),
        (gguf(pairs=[alignment(2**31)]), "alignment of 2147483648"),
    ],
)
def test_faults_of_a_header_are_named(content, reason):
    with pytest.raises(ModelFileError, match=reason):
        read(content)


@each_case(
    ("tensors", "reason"),
    [
        ([tensor(b"n" * 64, [1])], "a name of 64 bytes"),
        ([tensor(b"t", [4]), tensor(b"t", [4], offset=32)], "the tensor 't' twice"),
        ([tensor(b"t", [])], "has 0 dimensions"),
        ([tensor(b"t", [1] * 5)], "has 5 dimensions"),
        ([tensor(b"t", [0])], "cannot be in a file of"),
        ([tensor(b"t", [2**32, 2**32])], "cannot be in a file of"),
        ([tensor(b"t", [2**63, 2])], "cannot be in a file of"),
        ([tensor(b"t", [1000])], "cannot be in a file of"),
        ([tensor(b"t", [4], kind=4)], "unknown type 4"),
        ([tensor(b"t", [4], kind=2**31)], "unknown type 2147483648"),
        ([tensor(b"t", [33], kind=Q8_0)], "not whole blocks"),
        ([tensor(b"t", [4], offset=32)], "at 32, not at 0"),
        ([tensor(b"t", [4]), tensor(b"u", [4])], "at 0, not at 32"),
        ([tensor(b"t", [4], offset=HUGE)], f"at {HUGE}, not at 0"),
        ([tensor(b"t", [16], kind=F32)], "part is missing"),
    ],
)
def test_faults_of_a_tensor_are_named(tensors, reason):
    with pytest.raises(ModelFileError, match=reason):
        read(gguf(tensors=tensors, data=bytes(63)))


def test_a_name_is_quoted_in_one_line_and_in_part():
    wild = b"\n\x1b[31m\xff" * 20
    with pytest.raises(ModelFileError) as caught:
        read(gguf(pairs=[pair(wild, U16, b"xx")] * 2))
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_weights_are_not_read():
    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            assert self.tell() < 2**20
            return super().read(size)

    n_numbers = 2**22
    content = gguf(tensors=[tensor(b"t", [n_numbers])], data=bytes(4 * n_numbers))
    assert read_header(Watched(content), len(content)).n_tensors == 1


@pytest.mark.slow
@pytest.mark.alone
def test_a_vocabulary_of_a_hundred_thousand_takes_no_time():
    words = [text(b"word %d" % n) for n in range(100_000)]
    merges = array(TEXT, 3 * len(words), 3 * b"".join(words))
    content = gguf(pairs=[pair(b"m", ARRAY, merges)])
    began_s = time.process_time()
    read(content)
    assert time.process_time() - began_s < 1
