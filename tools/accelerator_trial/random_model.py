"""A model with random weights in the shape of a real one, written where it is needed.

The architecture is llama's. Weights are Q8_0 from the start: random bytes and one scale for each
matrix, since rounding billions of numbers would take longer than all else. Bytes and special
tokens are never the likeliest, so that each token of a greedy answer is text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

from tests.model.tiny import PRINTABLE, SPECIALS, TEMPLATE, vocabulary

BLOCK: Final = 32
"""Numbers with one scale in Q8_0."""
LARGEST: Final = 127.0
SPREAD: Final = 0.577
"""Standard deviation of evenly spread numbers from -1 to 1."""
GAIN: Final = 1.0
PIECES: Final = gguf.GGMLQuantizationType.Q8_0
NORM_EPSILON: Final = 1e-5
ROPE_BASE: Final = 500_000.0

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Shape:
    """The numbers that a model's speed depends on."""

    n_layers: int
    width: int
    feed_forward: int
    n_heads: int
    n_kv_heads: int
    n_vocab: int
    n_ctx: int = 131_072

    @property
    def kv_width(self) -> int:
        """Numbers of a token's keys in a layer, and of its values."""
        return self.width // self.n_heads * self.n_kv_heads

    def tensors(self) -> Iterator[tuple[str, int, int]]:
        """List the matrices: name, rows, columns."""
        yield "token_embd.weight", self.n_vocab, self.width
        yield "output.weight", self.n_vocab, self.width
        for layer in range(self.n_layers):
            block = f"blk.{layer}."
            yield f"{block}attn_q.weight", self.width, self.width
            yield f"{block}attn_k.weight", self.kv_width, self.width
            yield f"{block}attn_v.weight", self.kv_width, self.width
            yield f"{block}attn_output.weight", self.width, self.width
            yield f"{block}ffn_gate.weight", self.feed_forward, self.width
            yield f"{block}ffn_up.weight", self.feed_forward, self.width
            yield f"{block}ffn_down.weight", self.width, self.feed_forward

    def norms(self) -> Iterator[str]:
        """List the vectors, which are ones."""
        yield "output_norm.weight"
        for layer in range(self.n_layers):
            yield f"blk.{layer}.attn_norm.weight"
            yield f"blk.{layer}.ffn_norm.weight"


SHAPES: Final = {
    "tiny": Shape(4, 256, 512, 4, 2, 512),
    "small": Shape(30, 512, 512, 8, 8, 512),
    "llama-1b": Shape(16, 2048, 8192, 32, 8, 128_256),
    "llama-3b": Shape(28, 3072, 8192, 24, 8, 128_256),
    "llama-8b": Shape(32, 4096, 14_336, 32, 8, 128_256),
}
"""Shapes by the models that have them; ``small`` is for tests and has many layers, ``tiny`` is
for drivers that compute on the processor."""


def write_random_model(path: Path, shape: Shape, seed: int = 0) -> Path:
    """Write the model; the file appears when it is complete.

    Args:
        path: of the file.
        shape: its size.
        seed: of the weights.
    """
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    add_header(writer, shape)
    for name in shape.norms():
        writer.add_tensor_info(
            name, (shape.width,), np.dtype(np.float32), 4 * shape.width
        )
    for name, *size in shape.tensors():
        packed = (size[0], row_bytes(size[1]))
        n_bytes = packed[0] * packed[1]
        writer.add_tensor_info(name, packed, np.dtype(np.uint8), n_bytes, PIECES)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(seed)
    for _ in shape.norms():
        writer.write_tensor_data(np.ones(shape.width, np.float32))
    for name, n_rows, n_columns in shape.tensors():
        n_silent = n_silent_rows() if name == "output.weight" else 0
        writer.write_tensor_data(noise(random, n_rows, n_columns, n_silent))
    writer.close()
    return partial.rename(path)


def row_bytes(n_columns: int) -> int:
    """Return the bytes of a row in Q8_0."""
    return n_columns // BLOCK * (2 + BLOCK)


def n_silent_rows() -> int:
    """Count the first tokens, which are not text."""
    return len(vocabulary()) - len(PRINTABLE)


def noise(
    random: np.random.Generator, n_rows: int, n_columns: int, n_silent: int
) -> Bytes:
    """Make a matrix; its first rows are zero."""
    scale = np.float16(GAIN / (LARGEST * SPREAD * np.sqrt(n_columns)))
    blocks = np.empty((n_rows, n_columns // BLOCK, 2 + BLOCK), np.uint8)
    blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    blocks[:n_silent, :, :2] = 0
    blocks[:, :, 2:] = random.integers(
        0, 256, (n_rows, n_columns // BLOCK, BLOCK), np.uint8
    )
    return blocks.reshape(n_rows, row_bytes(n_columns))


def add_header(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Write all but the tensors."""
    writer.add_name("random weights")
    writer.add_chat_template(TEMPLATE)
    add_vocabulary(writer, shape.n_vocab)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_rope_dimension_count(shape.width // shape.n_heads)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Write a vocabulary of characters, filled up with words that no text has."""
    known = vocabulary()
    words = [
        (f"\N{LOWER ONE EIGHTH BLOCK}w{number}", gguf.TokenType.NORMAL, -1000.0)
        for number in range(n_vocab - len(known))
    ]
    tokens, types, scores = zip(*known, *words, strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    writer.add_token_scores(list(scores))
    writer.add_bos_token_id(SPECIALS.index("<s>"))
    writer.add_eos_token_id(SPECIALS.index("<|im_end|>"))
    writer.add_unk_token_id(SPECIALS.index("<unk>"))
    writer.add_add_bos_token(value=True)
    writer.add_add_space_prefix(value=False)
