"""The conversions by name: source files in, a model out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypedDict

import gguf

from .bert import Bert, with_second_segment, write_bert
from .ctranslate2 import read_ctranslate2
from .onnx import read_onnx
from .safetensors import read_safetensors
from .vocabulary import read_vocabulary
from .whisper import Whisper, write_whisper


class _Config(TypedDict):
    num_attention_heads: int
    layer_norm_eps: float


def all_minilm_l6_v2(directory: Path) -> Bert:
    """Read the sentence encoder from its published float32 weights; stored as float16."""
    config: _Config = json.loads((directory / "config.json").read_bytes())
    return Bert(
        name="all-MiniLM-L6-v2",
        license="apache-2.0",
        tensors=read_safetensors(directory / "model.safetensors"),
        vocabulary=read_vocabulary(directory / "vocab.txt"),
        n_heads=config["num_attention_heads"],
        layer_norm_epsilon=config["layer_norm_eps"],
        pooling=gguf.PoolingType.MEAN,
        storage="f16",
    )


def ms_marco_minilm_l12(directory: Path) -> Bert:
    """Read the cross-encoder from an ONNX graph with 8-bit integers.

    The graph lacks the model's hyperparameters, so they are given here.
    """
    tensors = read_onnx(directory / "model.onnx")
    model = Bert(
        name="ms-marco-MiniLM-L12",
        license="apache-2.0",
        tensors={name.removeprefix("bert."): each for name, each in tensors.items()},
        vocabulary=read_vocabulary(directory / "vocab.txt"),
        n_heads=12,
        layer_norm_epsilon=1e-12,
        pooling=gguf.PoolingType.RANK,
        storage="q8_0",
    )
    return with_second_segment(model)


def whisper(directory: Path) -> Whisper:
    """Read a speech model from weights of CTranslate2."""
    return Whisper(
        tensors=read_ctranslate2(directory / "model.bin", kind="WhisperSpec"),
        vocabulary=read_vocabulary(directory / "vocabulary.txt"),
    )


RECIPES: Final[dict[str, Callable[[Path], Bert | Whisper]]] = {
    "all-minilm-l6-v2": all_minilm_l6_v2,
    "ms-marco-minilm-l12": ms_marco_minilm_l12,
    "whisper": whisper,
}


def write_model(path: Path, model: Bert | Whisper) -> None:
    """Write a model file: GGUF, or the format of whisper.cpp."""
    match model:
        case Bert():
            write_bert(path, model)
        case Whisper():
            write_whisper(path, model)
