import gguf
import numpy as np
import pytest

from inferd.models.convert.bert import Bert, with_second_segment
from tests.unit.models.convert.files import N_HEADS, VOCABULARY, weights

TOKENS = "embeddings.word_embeddings.weight"
SEGMENTS = "embeddings.token_type_embeddings.weight"
MODEL = Bert(
    name="m",
    license="mit",
    tensors=weights(),
    vocabulary=VOCABULARY,
    n_heads=N_HEADS,
    layer_norm_epsilon=1e-12,
    pooling=gguf.PoolingType.RANK,
    storage="f32",
)


def test_a_token_of_the_second_half_has_the_second_segment_in_place_of_the_first():
    tokens = with_second_segment(MODEL).tensors[TOKENS]
    first, second = MODEL.tensors[SEGMENTS]
    here, there = np.split(tokens, 2)
    assert np.array_equal(here, MODEL.tensors[TOKENS])
    assert there + first == pytest.approx(here + second, abs=1e-5)
    assert not np.allclose(here, there)


def test_nothing_else_changes():
    changed = with_second_segment(MODEL)
    assert (MODEL.n_segments, changed.n_segments) == (1, 2)
    assert changed.vocabulary == MODEL.vocabulary
    assert list(changed.tensors) == list(MODEL.tensors)
    for name in set(MODEL.tensors) - {TOKENS}:
        assert changed.tensors[name] is MODEL.tensors[name]
