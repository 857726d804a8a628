import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from inferd.worker.llama.texts import json_rows, unit_vectors


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1
    )
)
def test_scaling_keeps_the_direction_and_leaves_nothing_as_it_is(rows):
    given_vectors = np.array(rows, np.float32)
    scaled = unit_vectors(given_vectors)
    lengths = np.linalg.norm(given_vectors, axis=1)
    assert scaled.dtype == np.float32
    assert np.isfinite(scaled).all()
    assert scaled[lengths == 0] == pytest.approx(0)
    assert scaled * lengths[:, None] == pytest.approx(given_vectors, rel=1e-3, abs=1e-6)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(*[st.floats(-1, 1, width=32)] * 3), min_size=1, max_size=5),
    st.sets(st.integers(1, 4)),
)
def test_rows_written_in_parts_are_those_written_at_once(rows, cuts):
    vectors = np.array(rows, np.float32)
    parts = np.split(vectors, sorted(cut for cut in cuts if cut < len(rows)))
    written = [
        json_rows(part, is_first=index == 0, is_last=index == len(parts) - 1)
        for index, part in enumerate(parts)
    ]
    assert b"".join(written) == msgspec.json.encode(vectors.tolist())


@given(st.integers(1, 40))
def test_vectors_are_scaled_alike_alone_and_together(n):
    vectors = np.random.default_rng(n).standard_normal((n, 33), np.float32)
    alone = np.vstack([unit_vectors(each[None]) for each in vectors])
    assert (alone == unit_vectors(vectors)).all()
