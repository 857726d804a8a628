import struct

import numpy as np
import pytest

from inferd.models.convert.mel import mel_filters
from inferd.models.convert.whisper import Whisper, write_whisper
from tests.model.tiny_whisper import (
    N_AUDIO_CTX,
    N_ENGLISH,
    N_MELS,
    N_TEXT_CTX,
    N_WIDTH,
    tensors_of,
)

N_PIECES = {N_ENGLISH: 50256, N_ENGLISH + 1: 50257}
WORDS = [f"w{number}" for number in range(N_ENGLISH)]


class Written:
    """A file, read as the library reads it."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        assert self.numbers(1) == (0x67676D6C,)
        self.shape = self.numbers(11)
        n_mels, n_frequencies = self.numbers(2)
        self.filters = self.floats("<f4", n_mels * n_frequencies)
        self.pieces = [self.octets(*self.numbers(1)) for _ in range(*self.numbers(1))]
        self.tensors = {}
        while self.at < len(data):
            n_dimensions, n_name, kind = self.numbers(3)
            shape = self.numbers(n_dimensions)[::-1]
            name = self.octets(n_name).decode()
            kind = ("<f4", "<f2")[kind]
            self.tensors[name] = self.floats(kind, np.prod(shape)).reshape(shape)

    def octets(self, size):
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, count):
        return struct.unpack(f"<{count}i", self.octets(4 * count))

    def floats(self, kind, count):
        return np.frombuffer(self.octets(count * np.dtype(kind).itemsize), kind)


def noise(n_vocab=N_ENGLISH):
    """Tensors of the right names and shapes, and of values that halves can hold."""
    random = np.random.default_rng(0)
    tensors = tensors_of({1: 2}, n_vocab)
    for name, values in tensors.items():
        if "num_heads" not in name:
            values[...] = random.integers(-8, 9, values.shape)
    for side in ("encoder", "decoder"):
        tensors[f"{side}/layer_0/self_attention/linear_0/bias"][N_WIDTH:-N_WIDTH] = 0
    tensors["decoder/layer_0/attention/linear_1/bias"][:N_WIDTH] = 0
    return tensors


@pytest.fixture
def written(tmp_path):
    def write(tensors, words=WORDS):
        write_whisper(tmp_path / "w.bin", Whisper(tensors, words))
        return Written((tmp_path / "w.bin").read_bytes())

    return write


@pytest.mark.slow
@pytest.mark.parametrize("n_vocab", N_PIECES)
def test_the_head_tells_shape_filters_and_the_pieces_of_text(written, n_vocab):
    file = written(noise(n_vocab))
    sides = (N_AUDIO_CTX, N_WIDTH, 1, 1, N_TEXT_CTX, N_WIDTH, 1, 1)
    assert file.shape == (n_vocab, *sides, N_MELS, 1)
    assert np.array_equal(file.filters, mel_filters(N_MELS).ravel())
    assert file.pieces == [word.encode() for word in WORDS[: N_PIECES[n_vocab]]]


@pytest.mark.slow
def test_every_tensor_is_written_once_at_its_offset(written):
    tensors = noise()
    file = written(tensors, WORDS)
    assert len(file.tensors) == 5 + 2 * (1 + 2) + 15 + 24
    for ours, theirs, part in [
        ("decoder.token_embedding.weight", "decoder/embeddings/weight", slice(None)),
        ("encoder.conv1.bias", "encoder/conv1/bias", slice(None)),
        ("encoder.ln_post.weight", "encoder/layer_norm/gamma", slice(None)),
        ("decoder.ln.bias", "decoder/layer_norm/beta", slice(None)),
        ("decoder.blocks.0.attn.query.weight", "self_attention/linear_0", (0, 1)),
        ("decoder.blocks.0.attn.key.weight", "self_attention/linear_0", (1, 2)),
        ("decoder.blocks.0.attn.value.weight", "self_attention/linear_0", (2, 3)),
        ("decoder.blocks.0.cross_attn.key.weight", "attention/linear_1", (0, 1)),
        ("decoder.blocks.0.cross_attn.value.weight", "attention/linear_1", (1, 2)),
        ("decoder.blocks.0.cross_attn.out.weight", "attention/linear_2", (0, 1)),
        ("decoder.blocks.0.mlp.0.weight", "ffn/linear_0", (0, 4)),
    ]:
        if isinstance(part, tuple):
            theirs = f"decoder/layer_0/{theirs}/weight"
            part = slice(*(N_WIDTH * edge for edge in part))
        assert np.array_equal(file.tensors[ours].ravel(), tensors[theirs][part].ravel())


@pytest.mark.slow
def test_matrices_are_halves_and_the_rest_floats(written):
    halves = {
        name
        for name, values in written(noise()).tensors.items()
        if values.dtype == np.float16
    }
    assert all(name.endswith(".weight") for name in halves)
    assert not any("ln" in name for name in halves)
    assert {"encoder.conv1.weight", "decoder.token_embedding.weight"} <= halves


@pytest.mark.slow
def test_pieces_are_written_as_the_octets_they_stand_for(written):
    file = written(noise(), ["\u0120a", "\u0100\u00a1\u00e9", "!~", *WORDS])
    assert file.pieces[:3] == [b" a", b"\x00\xa1\xe9", b"!~"]


def test_a_bias_that_the_format_cannot_hold_is_refused(tmp_path):
    tensors = noise()
    tensors["encoder/layer_0/self_attention/linear_0/bias"] += 1
    with pytest.raises(ValueError, match="^encoder/layer_0/self_attention/linear_0: k"):
        write_whisper(tmp_path / "w.bin", Whisper(tensors, WORDS))
