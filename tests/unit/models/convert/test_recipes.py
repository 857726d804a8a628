import json

import gguf
import numpy as np
import pytest

from inferd.models.convert.bert import Bert
from inferd.models.convert.recipes import RECIPES, write_model
from inferd.models.convert.whisper import Whisper
from tests.model.tiny_whisper import write_tiny_whisper
from tests.unit.models.convert.files import (
    N_HEADS,
    VOCABULARY,
    ctranslate2,
    node,
    onnx_file,
    quantised,
    safetensors,
    tensor,
    weights,
)

SCALE = 0.05


def graph(tensors):
    """Quantise a model as its exporter does."""
    stored, nodes = [], []
    for number, (name, values) in enumerate(tensors.items()):
        full = name if name.startswith("classifier") else f"bert.{name}"
        if values.ndim == 1:
            stored.append(tensor(full, values))
        elif "embeddings" in name:
            rows = np.clip(np.round(values / SCALE) + 128, 0, 255).astype(np.uint8)
            stored += quantised(full, rows, SCALE, 128)
        else:
            whole = np.clip(np.round(values.T / SCALE), -127, 127).astype(np.int8)
            module = full.removesuffix(".weight").replace("layer.", "layer#")
            path = f"/{module.replace('.', '/').replace('#', '.')}/MatMul_quant"
            inputs = ["x", f"onnx::MatMul_{number}_quantized", "a", "b"]
            stored += quantised(f"onnx::MatMul_{number}", whole, SCALE, 0)
            nodes.append(node("MatMulInteger", path, inputs))
    return onnx_file(stored, nodes)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    config = {"num_attention_heads": N_HEADS, "layer_norm_eps": 1e-5, "vocab_size": 9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(safetensors(weights()))
    (tmp_path / "model.onnx").write_bytes(graph(weights()))
    return tmp_path


def test_the_sentence_encoder_has_the_settings_of_its_own_files(directory):
    model = RECIPES["all-minilm-l6-v2"](directory)
    assert isinstance(model, Bert)
    assert (model.name, model.license) == ("all-MiniLM-L6-v2", "apache-2.0")
    assert (model.n_heads, model.layer_norm_epsilon) == (N_HEADS, 1e-5)
    assert (model.n_layers, model.n_segments) == (2, 1)
    assert (model.pooling, model.storage) == (gguf.PoolingType.MEAN, "f16")
    assert model.vocabulary == VOCABULARY
    for name, values in weights().items():
        assert np.array_equal(model.tensors[name], values)


def test_the_cross_encoder_is_read_from_its_integers_and_gets_two_segments(directory):
    model = RECIPES["ms-marco-minilm-l12"](directory)
    assert isinstance(model, Bert)
    assert (model.name, model.license) == ("ms-marco-MiniLM-L12", "apache-2.0")
    assert (model.n_heads, model.layer_norm_epsilon) == (12, 1e-12)
    assert (model.n_layers, model.n_segments) == (2, 2)
    assert (model.pooling, model.storage) == (gguf.PoolingType.RANK, "q8_0")
    for name, values in weights().items():
        read = model.tensors[name][: len(values)]
        assert np.abs(read - values).max() <= 0.51 * SCALE, name


def test_a_speech_model_is_read_and_its_sources_stay_as_they_are(tmp_path):
    words = ["a", "b", "\u0120c"]
    (tmp_path / "vocabulary.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "model.bin").write_bytes(ctranslate2(weights()))
    model = RECIPES["whisper"](tmp_path)
    assert isinstance(model, Whisper)
    assert model.vocabulary == words
    assert {path.name for path in tmp_path.iterdir()} == {"vocabulary.txt", "model.bin"}
    assert list(model.tensors) == list(weights())
    for name, values in weights().items():
        assert np.array_equal(model.tensors[name], values)


def test_what_is_written_is_of_the_models_own_format(directory, tmp_path):
    write_model(tmp_path / "bert", RECIPES["all-minilm-l6-v2"](directory))
    write_tiny_whisper(tmp_path / "whisper")
    assert (tmp_path / "bert").read_bytes()[:4] == b"GGUF"
    assert (tmp_path / "whisper").read_bytes()[:4] == b"lmgg"
