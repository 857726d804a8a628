import os
import re
import struct
from contextlib import suppress
from io import FileIO

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from inferd.limits.model_files import SHOWN_TEMPLATE_BYTES, SHOWN_TEXT_BYTES
from inferd.models.facts.model import ModelFacts
from inferd.models.facts.read import ReadModel, read_model
from inferd.models.file_error import ModelFileError
from tests.fakes.gguf_bytes import TEXT, gguf, pair, sound, tensor, text
from tests.fakes.gguf_split import part_names, split_keys
from tests.model.tiny import TEMPLATE, write_tiny_model
from tests.unit.worker.whisper.models import SMALL, model_bytes

RICH = gguf(
    pairs=[
        pair(b"general.architecture", TEXT, text(b"llama")),
        pair(b"general.name", TEXT, text(b"Tiny")),
        pair(b"general.license", TEXT, text(b"mit")),
        pair(b"tokenizer.chat_template", TEXT, text(b"{{ messages }}" * 9)),
    ],
    tensors=[tensor(b"token_embd.weight", [32, 2]), tensor(b"b", [4], offset=256)],
    data=bytes(256 + 16),
)
SPEECH = model_bytes()


def of_parts(n_parts: int, part: int) -> bytes:
    keys = split_keys(part, n_parts, n_tensors=n_parts)
    return gguf(pairs=keys, tensors=[tensor(b"t", [8])], data=bytes(32))


def test_a_model_of_llama_cpp_is_read_with_its_template(tmp_path):
    read = read_model([write_tiny_model(tmp_path / "m.gguf")])
    assert read.facts.name == "tiny-random"
    assert (read.facts.n_layers, read.facts.n_ctx) == (2, 512)
    assert read.chat_template == TEMPLATE


def test_a_model_of_whisper_cpp_is_read(tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(SPEECH)
    facts = read_model([path]).facts
    assert (facts.kind, facts.n_vocab) == ("whispercpp", SMALL.n_vocab)
    assert facts.n_bytes == len(SPEECH)


def test_parts_are_found_by_their_names_or_given(tmp_path):
    named = [tmp_path / name for name in part_names("m", 2)]
    blobs = [tmp_path / "abc", tmp_path / "def"]
    for paths in (named, blobs):
        for part, path in enumerate(paths):
            path.write_bytes(of_parts(2, part))
    for paths in (named[:1], named, blobs):
        assert read_model(paths).facts.n_parameters == 16
    with pytest.raises(
        ModelFileError, match=f"{blobs[0]}: it is part 1 of 2, and part 2"
    ):
        read_model([blobs[0], blobs[0]])
    with pytest.raises(
        ModelFileError, match=f"^{blobs[0]}: it is the first of 2 parts"
    ):
        read_model(blobs[:1])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither a GGUF file nor a model of whisper.cpp"),
        (b"<html>", "neither a GGUF file nor a model of whisper.cpp"),
        (b"GGUF", "it ends after 4 bytes, amid its header"),
        (RICH[:200], "it ends after 200 bytes, amid its header"),
        (RICH[:-1], r"it has \d+ bytes of \d+: part is missing"),
        (SPEECH[:-1], "it is truncated: it ends after .* bytes"),
    ],
)
def test_a_file_that_is_no_whole_model_is_named_with_the_reason(
    content, reason, tmp_path
):
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"^{re.escape(str(path))}: {reason}"):
        read_model([path])


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, reason in [
        ("pipe", "not a regular"),
        ("no", "No such file"),
        (".", "Is a directory"),
    ]:
        with pytest.raises(ModelFileError, match=reason):
            read_model([tmp_path / name])


class CountedFile(FileIO):
    """A file whose reads are counted."""

    n_reads = 0
    n_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert 0 < size <= 2**20
        data = super().read(size)
        type(self).n_reads += 1
        type(self).n_bytes += len(data)
        return data


def read_counted(path, content: bytes) -> ReadModel:
    path.write_bytes(content)
    CountedFile.n_reads = CountedFile.n_bytes = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.models.facts.read.FileIO", CountedFile)
        patch.setattr("inferd.models.gguf_header.reader._CHUNK_BYTES", 64)
        patch.setattr("inferd.models.whisper_header.header._CHUNK_BYTES", 64)
        return read_model([path])


def check_bounds(read: ReadModel) -> None:
    facts = read.facts
    assert len(facts.name) <= SHOWN_TEXT_BYTES
    assert len(facts.license) <= SHOWN_TEXT_BYTES
    assert len(read.chat_template) <= SHOWN_TEMPLATE_BYTES
    assert isinstance(facts, ModelFacts)
    assert 0 <= facts.token_bytes <= facts.n_bytes


SOUND = st.sampled_from([RICH, sound(), SPEECH])
NASTY = st.sampled_from([0, 1, 255, 2**16, 2**31, 2**32 - 1, 2**63, 2**64 - 1])


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A model file with some bytes, numbers and lengths of its header replaced."""
    content = bytearray(draw(SOUND))
    head = min(len(content) - 8, 600)
    for place, value in draw(
        st.lists(st.tuples(st.integers(0, head), st.integers(0, 255)), max_size=6)
    ):
        content[place] = value
    if draw(st.booleans()):
        place = draw(st.integers(4, head))
        content[place : place + 8] = struct.pack("<Q", draw(NASTY))
    if draw(st.booleans()):
        place = draw(st.integers(4, head))
        content[place:place] = draw(st.binary(max_size=40))
    return bytes(
        content[: draw(st.integers(0, len(content)))]
        if draw(st.booleans())
        else content
    )


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=mutants())
def test_a_mutated_file_is_read_or_refused_in_few_steps(content, tmp_path):
    with suppress(ModelFileError):
        check_bounds(read_counted(tmp_path / "m", content))
    # Each chunk begins behind what was read before it, or holds what the last one lacked.
    assert CountedFile.n_reads <= 2 + len(content) // 4
    assert CountedFile.n_bytes <= 4 + 4 * len(content) + 64
