"""What is made of which files, by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypedDict

import gguf

from .bert import Bert, write_bert
from .ctranslate2 import read_ctranslate2
from .onnx import read_onnx
from .safetensors import read_safetensors
from .segments import with_second_segment
from .vocabulary import read_vocabulary
from .whisper import Whisper, write_whisper


class _Config(TypedDict):
    num_attention_heads: int
    layer_norm_eps: float


def all_minilm_l6_v2(directory: Path) -> Bert:
    """Take the sentence encoder as it was published, in half the precision."""
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
    """Take the cross-encoder from a graph of eight-bit integers.

    The graph comes without the model's settings, so these stand here.
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
    """Take a speech model from weights for CTranslate2, in one file or in parts."""
    path = directory / "model.bin"
    if parts := sorted(directory.glob("model.bin.part*")):
        path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return Whisper(
        tensors=read_ctranslate2(path, kind="WhisperSpec"),
        vocabulary=read_vocabulary(directory / "vocabulary.txt"),
    )


RECIPES: Final[dict[str, Callable[[Path], Bert | Whisper]]] = {
    "all-minilm-l6-v2": all_minilm_l6_v2,
    "ms-marco-minilm-l12": ms_marco_minilm_l12,
    "whisper": whisper,
}


def write_model(path: Path, model: Bert | Whisper) -> None:
    """Write the file of a model: GGUF, or what whisper.cpp reads."""
    match model:
        case Bert():
            write_bert(path, model)
        case Whisper():
            write_whisper(path, model)
