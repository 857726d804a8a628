import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from inferd.worker.llama.model.batch import Batch, VectorBatch

pytestmark = pytest.mark.model

CAPACITY = 32


def rows_of(batch):
    """Read the struct as the library does: token, position, sequences, logits wanted."""
    struct = batch.handle
    return [
        (
            struct.token[row],
            struct.pos[row],
            struct.seq_id[row][: struct.n_seq_id[row]],
            struct.logits[row],
        )
        for row in range(struct.n_tokens)
    ]


def test_a_new_batch_is_empty_and_embeds_nothing():
    batch = Batch(CAPACITY)
    assert (len(batch), rows_of(batch)) == (0, [])
    assert not batch.handle.embd


def test_tokens_of_a_sequence_follow_each_other():
    batch = Batch(CAPACITY)
    assert batch.add([7, 8], at=0, sequence=2, n_logits=0) == 0
    assert batch.add([9], at=5, sequence=1, n_logits=1) == 2
    assert rows_of(batch) == [(7, 0, [2], 0), (8, 1, [2], 0), (9, 5, [1], 1)]
    assert len(batch) == 3


@pytest.mark.parametrize(("n_logits", "wanted"), [(0, [0, 0, 0]), (2, [0, 1, 1])])
def test_logits_are_wanted_of_the_last_tokens(n_logits, wanted):
    batch = Batch(CAPACITY)
    batch.add([7, 8, 9], at=0, sequence=0, n_logits=n_logits)
    assert [each for *_, each in rows_of(batch)] == wanted


def test_of_a_whole_sequence_every_token_counts():
    batch = Batch(CAPACITY)
    batch.add([1, 2], at=0, sequence=0, n_logits=0)
    batch.add_for_pooling([7, 8, 9], sequence=4)
    assert rows_of(batch)[:2] == [(1, 0, [0], 0), (2, 1, [0], 0)]
    assert rows_of(batch)[2:] == [(7, 0, [4], 1), (8, 1, [4], 1), (9, 2, [4], 1)]


def test_a_cleared_batch_is_empty():
    batch = Batch(CAPACITY)
    batch.add([7, 8, 9], at=0, sequence=3, n_logits=1)
    batch.clear()
    assert (len(batch), rows_of(batch)) == (0, [])
    batch.add([1, 2, 3], at=4, sequence=0, n_logits=0)
    assert rows_of(batch) == [(1, 4, [0], 0), (2, 5, [0], 0), (3, 6, [0], 0)]


ADDED = st.tuples(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
    st.integers(0, 2**20),
    st.integers(0, 255),
    st.integers(0, 1),
)


@settings(max_examples=30)
@given(st.lists(st.lists(ADDED, max_size=5), max_size=2))
def test_the_library_reads_what_was_added(batches):
    batch = Batch(CAPACITY)
    for added in batches:
        batch.clear()
        expected = []
        for tokens, at, sequence, n_logits in added:
            first = len(batch)
            row = batch.add(tokens, at=at, sequence=sequence, n_logits=n_logits)
            expected += [(each, at + n, [sequence], 0) for n, each in enumerate(tokens)]
            expected[-1] = (*expected[-1][:3], n_logits)
            assert row == first
        assert rows_of(batch) == expected


@pytest.mark.parametrize("n_positions", [1, 4])
def test_vectors_stand_in_place_of_tokens(n_positions):
    batch = VectorBatch(CAPACITY)
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    places = np.arange(2 * n_positions, dtype=np.int32).reshape(n_positions, 2)
    for begin in (0, 1):  # a slice of rows, and of columns
        batch.fill(vectors[begin:], positions=places[:, begin:], sequence=5)
        n_tokens = 2 - begin
        assert not batch.handle.token
        assert batch.handle.n_tokens == n_tokens
        assert batch.handle.embd[: 3 * n_tokens] == vectors[begin:].ravel().tolist()
        positions = batch.handle.pos[: n_positions * n_tokens]
        assert positions == places[:, begin:].ravel().tolist()
        assert [batch.handle.seq_id[n][0] for n in range(n_tokens)] == [5] * n_tokens
        assert list(batch.handle.logits[:n_tokens]) == [0] * n_tokens
