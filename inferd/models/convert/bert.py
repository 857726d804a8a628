"""Write a BERT encoder as a GGUF file."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

from .vocabulary import add_vocabulary

Array = npt.NDArray[np.float32]

SEGMENT_KEY: Final = "inferd.second_segment_offset"
"""Metadata key: the offset to add to the ids of tokens in the second segment."""

_EMBEDDINGS: Final = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}
_LAYER: Final = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_HEAD: Final = {"pooler.dense": "cls", "classifier": "cls.output"}
_EXACT: Final = ("position_embd.weight", "token_types.weight", "cls.output.weight")
"""Matrices that stay float32: too small for quantisation to be worth its loss."""

_STORAGES: Final = {
    "f32": (gguf.LlamaFileType.ALL_F32, gguf.GGMLQuantizationType.F32),
    "f16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
    "q8_0": (gguf.LlamaFileType.MOSTLY_Q8_0, gguf.GGMLQuantizationType.Q8_0),
}


@dataclass(frozen=True)
class Bert:
    """A BERT encoder with its pooling."""

    name: str
    license: str
    tensors: Mapping[str, Array]
    """By their published names, without the prefix ``bert.``."""
    vocabulary: Sequence[str]
    n_heads: int
    layer_norm_epsilon: float
    pooling: gguf.PoolingType
    """With ``RANK``, the model has a head that computes one score."""
    storage: str
    """Type of the matrices: ``f32``, ``f16`` or ``q8_0``."""
    n_segments: int = 1
    """Number of copies of the vocabulary in the token table."""

    @property
    def n_layers(self) -> int:
        """Number of layers, from the names of the tensors."""
        names = (f"encoder.layer.{n}.output.dense.weight" for n in itertools.count())
        return sum(1 for _ in itertools.takewhile(self.tensors.__contains__, names))


def write_bert(path: Path, model: Bert) -> None:
    """Write the file; its bytes are a function of the model.

    Raises:
        KeyError: a tensor is missing.
    """
    writer = gguf.GGUFWriter(path, "bert")
    _add_shape(writer, model)
    add_vocabulary(writer, model.vocabulary, n_segments=model.n_segments)
    if model.n_segments > 1:
        writer.add_uint32(SEGMENT_KEY, len(model.vocabulary))
    _, matrices = _STORAGES[model.storage]
    for source, target in _names(model):
        values = model.tensors[source]
        is_exact = values.ndim == 1 or target in _EXACT
        stored = gguf.GGMLQuantizationType.F32 if is_exact else matrices
        packed = gguf.quants.quantize(np.ascontiguousarray(values), stored)
        writer.add_tensor(target, packed, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, model: Bert) -> None:
    """Write the metadata of the architecture."""
    tensors = model.tensors
    n_context, width = tensors["embeddings.position_embeddings.weight"].shape
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(model.name)
    writer.add_license(model.license)
    writer.add_file_type(_STORAGES[model.storage][0])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(n_context)
    writer.add_embedding_length(width)
    writer.add_block_count(model.n_layers)
    writer.add_feed_forward_length(len(tensors[_layer(0, "intermediate.dense.bias")]))
    writer.add_head_count(model.n_heads)
    writer.add_layer_norm_eps(model.layer_norm_epsilon)
    writer.add_causal_attention(value=False)
    writer.add_pooling_type(model.pooling)
    segments = tensors["embeddings.token_type_embeddings.weight"]
    writer.add_token_type_count(len(segments))
    if model.pooling == gguf.PoolingType.RANK:
        writer.add_classifier_output_labels(["score"])


def _names(model: Bert) -> Iterator[tuple[str, str]]:
    """Yield the published name and the GGUF name of every tensor, in file order."""
    yield from _EMBEDDINGS.items()
    modules = {
        _layer(number, source): f"blk.{number}.{target}"
        for number in range(model.n_layers)
        for source, target in _LAYER.items()
    }
    if model.pooling == gguf.PoolingType.RANK:
        modules |= _HEAD
    for source, target in modules.items():
        for part in ("weight", "bias"):
            yield f"{source}.{part}", f"{target}.{part}"


def _layer(number: int, name: str) -> str:
    return f"encoder.layer.{number}.{name}"


_TOKENS: Final = "embeddings.word_embeddings.weight"
_SEGMENTS: Final = "embeddings.token_type_embeddings.weight"


def with_second_segment(model: Bert) -> Bert:
    """Add a copy of the token embeddings for the second segment.

    llama.cpp adds the embedding of the first segment to every token; the copy has the
    difference to the second segment's added.
    """
    tokens, segments = model.tensors[_TOKENS], model.tensors[_SEGMENTS]
    both = np.concatenate([tokens, tokens + (segments[1] - segments[0])])
    return replace(model, tensors={**model.tensors, _TOKENS: both}, n_segments=2)
