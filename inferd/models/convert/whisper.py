"""Write a Whisper model of CTranslate2 in the format of whisper.cpp.

The file has a magic number, eleven hyperparameters, the mel filters, the pieces of the
vocabulary as bytes, and the tensors, every one after a small header.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from .ctranslate2 import Array
from .mel import mel_filters

_MAGIC: Final = 0x67676D6C
_F32, _F16 = 0, 1
_N_MULTILINGUAL: Final = 51865
"""Size of the smallest multilingual vocabulary."""
_N_PIECES: Final = 50256
"""Number of text pieces in the English vocabulary; the multilingual one has one more. The
library knows the meaning of higher ids."""

_NORMS: Final = {"self_attention": "attn_ln", "ffn": "mlp_ln"}
_CROSS_NORMS: Final = {"attention": "cross_attn_ln"}
_LINEARS: Final = {
    "self_attention/linear_0": ("attn.query", "attn.key", "attn.value"),
    "self_attention/linear_1": ("attn.out",),
    "ffn/linear_0": ("mlp.0",),
    "ffn/linear_1": ("mlp.2",),
}
"""A matrix of CTranslate2 to the one or more matrices of whisper.cpp it holds."""
_CROSS_LINEARS: Final = {
    "attention/linear_0": ("cross_attn.query",),
    "attention/linear_1": ("cross_attn.key", "cross_attn.value"),
    "attention/linear_2": ("cross_attn.out",),
}
"""The same for the cross-attention of the decoder."""

_PLAIN: Final = (*range(33, 127), *range(161, 173), *range(174, 256))
_MOVED: Final = (octet for octet in range(256) if octet not in _PLAIN)
_OCTETS: Final = {chr(octet): octet for octet in _PLAIN} | {
    chr(256 + number): octet for number, octet in enumerate(_MOVED)
}
"""Character of a published piece to the byte that it stands for."""


@dataclass(frozen=True)
class Whisper:
    """A Whisper model with the tensors of CTranslate2."""

    tensors: Mapping[str, Array]
    vocabulary: Sequence[str]
    """Pieces in the order of their ids; pieces that are not text are ignored."""


def write_whisper(path: Path, model: Whisper) -> None:
    """Write the file; its bytes are a function of the model.

    Raises:
        KeyError: a tensor is missing.
        ValueError: keys have a bias, which the format cannot hold.
    """
    tensors = model.tensors
    n_vocab, _ = tensors["decoder/embeddings/weight"].shape
    n_mels = tensors["encoder/conv1/weight"].shape[1]
    n_pieces = _N_PIECES + (n_vocab >= _N_MULTILINGUAL)
    filters = mel_filters(n_mels)
    with path.open("wb") as file:
        sides = (*_shape(tensors, "encoder"), *_shape(tensors, "decoder"))
        _write_numbers(file, _MAGIC, n_vocab, *sides, n_mels, _F16)
        _write_numbers(file, *filters.shape)
        file.write(filters.tobytes())
        _write_numbers(file, n_pieces)
        for piece in model.vocabulary[:n_pieces]:
            octets = bytes(map(_OCTETS.__getitem__, piece))
            _write_numbers(file, len(octets))
            file.write(octets)
        for name, values in _renamed(tensors):
            _write_tensor(file, name, values)


def _shape(tensors: Mapping[str, Array], side: str) -> tuple[int, int, int, int]:
    """Return the number of positions, the width, and the number of heads and layers."""
    n_positions, width = tensors[f"{side}/position_encodings/encodings"].shape
    n_heads = int(tensors[f"{side}/num_heads"])
    names = (f"{side}/layer_{n}/ffn/linear_0/weight" for n in itertools.count())
    n_layers = sum(1 for _ in itertools.takewhile(tensors.__contains__, names))
    return n_positions, width, n_heads, n_layers


def _renamed(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors with their names in whisper.cpp."""
    yield "decoder.token_embedding.weight", tensors["decoder/embeddings/weight"]
    for conv in ("conv1", "conv2"):
        bias = tensors[f"encoder/{conv}/bias"]
        yield f"encoder.{conv}.weight", tensors[f"encoder/{conv}/weight"]
        yield f"encoder.{conv}.bias", bias.reshape(-1, 1)
    for side, last in (("encoder", "ln_post"), ("decoder", "ln")):
        positions = tensors[f"{side}/position_encodings/encodings"]
        yield f"{side}.positional_embedding", positions
        yield from _norm(tensors, side, f"{side}.{last}")
        for number in range(_shape(tensors, side)[-1]):
            yield from _layer(tensors, side, number)


def _layer(
    tensors: Mapping[str, Array], side: str, number: int
) -> Iterator[tuple[str, Array]]:
    source, target = f"{side}/layer_{number}", f"{side}.blocks.{number}"
    is_decoder = side == "decoder"
    for module, name in (_NORMS | (_CROSS_NORMS if is_decoder else {})).items():
        yield from _norm(tensors, f"{source}/{module}", f"{target}.{name}")
    for module, names in (_LINEARS | (_CROSS_LINEARS if is_decoder else {})).items():
        weights = tensors[f"{source}/{module}/weight"]
        biases = tensors[f"{source}/{module}/bias"]
        for name, weight, bias in zip(
            names,
            np.split(weights, len(names)),
            np.split(biases, len(names)),
            strict=True,
        ):
            yield f"{target}.{name}.weight", weight
            if not name.endswith(".key"):
                yield f"{target}.{name}.bias", bias
            elif bias.any():
                raise ValueError(f"{source}/{module}: keys have a bias")


def _norm(
    tensors: Mapping[str, Array], source: str, target: str
) -> Iterator[tuple[str, Array]]:
    yield f"{target}.weight", tensors[f"{source}/layer_norm/gamma"]
    yield f"{target}.bias", tensors[f"{source}/layer_norm/beta"]


def _write_tensor(file: BinaryIO, name: str, values: Array) -> None:
    """Write a tensor: as float16 if it is a weight matrix, else as float32."""
    is_exact = values.ndim == 1 or name.endswith((".bias", ".positional_embedding"))
    octets = name.encode()
    _write_numbers(file, values.ndim, len(octets), _F32 if is_exact else _F16)
    _write_numbers(file, *reversed(values.shape))
    file.write(octets)
    file.write(values.astype("<f4" if is_exact else "<f2").tobytes())


def _write_numbers(file: BinaryIO, *numbers: int) -> None:
    file.write(struct.pack(f"<{len(numbers)}i", *numbers))
