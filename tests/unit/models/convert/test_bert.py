from dataclasses import replace

import gguf
import numpy as np
import pytest

from inferd.models.convert.bert import (
    SEGMENT_KEY,
    Bert,
    with_second_segment,
    write_bert,
)
from tests.unit.models.convert.files import N_HEADS, VOCABULARY, WIDTH, weights

POOLINGS = gguf.PoolingType
MODEL = Bert(
    name="a-name",
    license="mit",
    tensors=weights(n_layers=2, n_ctx=8),
    vocabulary=VOCABULARY,
    n_heads=N_HEADS,
    layer_norm_epsilon=1e-7,
    pooling=POOLINGS.MEAN,
    storage="f32",
)
RANKER = replace(MODEL, pooling=POOLINGS.RANK)
LAYER = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}


@pytest.fixture
def written(tmp_path):
    def written(model):
        write_bert(tmp_path / "model.gguf", model)
        return gguf.GGUFReader(tmp_path / "model.gguf")

    return written


def header(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


def tensors(reader):
    return {each.name: each for each in reader.tensors}


def test_the_metadata_describes_the_model(written):
    fields = header(written(MODEL))
    assert fields["general.architecture"] == "bert"
    assert fields["general.name"] == "a-name"
    assert fields["general.license"] == "mit"
    assert fields["bert.context_length"] == 8
    assert fields["bert.embedding_length"] == WIDTH
    assert fields["bert.feed_forward_length"] == 2 * WIDTH
    assert fields["bert.block_count"] == 2
    assert fields["bert.attention.head_count"] == N_HEADS
    assert fields["bert.attention.layer_norm_epsilon"] == pytest.approx(1e-7)
    assert fields["bert.attention.causal"] is False
    assert fields["tokenizer.ggml.token_type_count"] == 2
    assert SEGMENT_KEY not in fields


@pytest.mark.parametrize("pooling", [POOLINGS.MEAN, POOLINGS.CLS, POOLINGS.RANK])
def test_pooling_is_what_the_model_asks_for(written, pooling):
    reader = written(replace(MODEL, pooling=pooling))
    assert header(reader)["bert.pooling_type"] == pooling
    ranks = pooling == POOLINGS.RANK
    assert ("bert.classifier.output_labels" in header(reader)) == ranks
    head = {"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"}
    assert (set(tensors(reader)) & head) == (head if ranks else set())


def test_every_tensor_is_where_llama_cpp_looks(written):
    stored = tensors(written(RANKER))
    names = {
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
        "cls": "pooler.dense",
        "cls.output": "classifier",
        **{
            f"blk.{layer}.{target}": f"encoder.layer.{layer}.{source}"
            for layer in range(2)
            for target, source in LAYER.items()
        },
    }
    assert len(stored) == len(MODEL.tensors)
    for name, each in stored.items():
        module, _, part = name.rpartition(".")
        assert np.array_equal(each.data, MODEL.tensors[f"{names[module]}.{part}"])


@pytest.mark.parametrize("storage", ["f16", "q8_0"])
def test_matrices_are_packed_and_what_is_small_is_not(written, storage):
    reader = written(replace(RANKER, storage=storage))
    kinds = {name: each.tensor_type.name for name, each in tensors(reader).items()}
    small = {name for name, kind in kinds.items() if kind == "F32"}
    assert set(kinds.values()) == {"F32", storage.upper()}
    assert small == {
        *(name for name in kinds if name.endswith(".bias") or "norm" in name),
        *("position_embd.weight", "token_types.weight", "cls.output.weight"),
    }
    assert header(reader)["general.file_type"] == {"f16": 1, "q8_0": 7}[storage]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name, order in (("a", 1), ("b", -1)):
        shuffled = dict(list(MODEL.tensors.items())[::order])
        write_bert(tmp_path / name, replace(RANKER, tensors=shuffled, storage="q8_0"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_second_segment_is_in_the_metadata(written):
    reader = written(with_second_segment(RANKER))
    assert header(reader)[SEGMENT_KEY] == len(VOCABULARY)
    n_tokens = len(header(reader)["tokenizer.ggml.tokens"])
    assert n_tokens == len(tensors(reader)["token_embd.weight"].data)


def test_a_tensor_that_is_missing_is_named(tmp_path):
    name = "encoder.layer.1.output.LayerNorm.bias"
    some = {key: values for key, values in MODEL.tensors.items() if key != name}
    with pytest.raises(KeyError, match=name):
        write_bert(tmp_path / "model.gguf", replace(MODEL, tensors=some))
