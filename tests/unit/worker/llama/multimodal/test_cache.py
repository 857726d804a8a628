import numpy as np
import pytest
from hypothesis import given, strategies as st

from inferd.worker.llama.multimodal.cache import MediaCache
from inferd.worker.llama.multimodal.chunks import Chunk, MediaChunk

ANN, BEN = 1000, 1001
NUMBER_BYTES = 4


def clip(n_numbers: int) -> MediaChunk:
    vectors = np.zeros((1, n_numbers), np.float32)
    return MediaChunk(1, is_atomic=False, vectors=vectors)


def test_encoded_media_are_found_by_their_digest():
    shown = MediaCache(1000)
    parts: list[Chunk] = [[1, 2], clip(3)]
    shown.keep(ANN, b"a", parts)
    assert shown.find(ANN, b"a") == tuple(parts)
    assert shown.find(ANN, b"b") is None


def test_no_user_finds_media_of_another():
    shown = MediaCache(1000)
    shown.keep(ANN, b"a", [clip(3)])
    assert shown.find(BEN, b"a") is None


def test_the_least_recently_used_is_evicted_first():
    shown = MediaCache(2 * NUMBER_BYTES)
    for digest in (b"a", b"b"):
        shown.keep(ANN, digest, [clip(1)])
    shown.find(ANN, b"a")
    shown.keep(ANN, b"c", [clip(1)])
    assert shown.find(ANN, b"b") is None
    assert shown.find(ANN, b"a") is not None


def test_what_is_larger_than_all_there_is_drives_nothing_out():
    shown = MediaCache(2 * NUMBER_BYTES)
    shown.keep(ANN, b"a", [clip(1)])
    shown.keep(ANN, b"b", [clip(2), clip(1)])
    assert shown.find(ANN, b"a") is not None
    assert shown.find(ANN, b"b") is None
    shown.keep(ANN, b"c", [clip(2)])
    assert shown.find(ANN, b"c") is not None


@pytest.mark.parametrize("n_times", [1, 2])
def test_media_that_are_added_again_count_once(n_times):
    shown = MediaCache(100)
    for _ in range(n_times):
        shown.keep(ANN, b"a", [clip(3)])
    assert shown.n_bytes == 3 * NUMBER_BYTES


@given(
    st.lists(
        st.tuples(st.sampled_from([ANN, BEN]), st.binary(max_size=1), st.integers(0, 9))
    )
)
def test_the_size_is_counted_and_never_over_its_limit(kept):
    shown = MediaCache(20 * NUMBER_BYTES)
    last = {}
    for owner, digest, n_numbers in kept:
        shown.keep(owner, digest, [clip(n_numbers)])
        last[owner, digest] = n_numbers
    found = {key: n for key, n in last.items() if shown.find(*key) is not None}
    assert shown.n_bytes == sum(found.values()) * NUMBER_BYTES <= 20 * NUMBER_BYTES
