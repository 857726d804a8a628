import numpy as np
import pytest
from hypothesis import given, strategies as st

from inferd.worker.llama.clips import Clip, Part
from inferd.worker.llama.shown import Shown

ANN, BEN = 1000, 1001
NUMBER_BYTES = 4


def clip(n_numbers: int) -> Clip:
    vectors = np.zeros((1, n_numbers), np.float32)
    return Clip(1, is_whole=False, vectors=vectors)


def test_what_was_shown_is_found_by_its_digest():
    shown = Shown(1000)
    parts: list[Part] = [[1, 2], clip(3)]
    shown.keep(ANN, b"a", parts)
    assert shown.find(ANN, b"a") == tuple(parts)
    assert shown.find(ANN, b"b") is None


def test_nobody_finds_what_another_user_has_shown():
    shown = Shown(1000)
    shown.keep(ANN, b"a", [clip(3)])
    assert shown.find(BEN, b"a") is None


def test_what_was_used_least_lately_goes_first():
    shown = Shown(2 * NUMBER_BYTES)
    for digest in (b"a", b"b"):
        shown.keep(ANN, digest, [clip(1)])
    shown.find(ANN, b"a")
    shown.keep(ANN, b"c", [clip(1)])
    assert shown.find(ANN, b"b") is None
    assert shown.find(ANN, b"a") is not None


def test_what_is_larger_than_all_there_is_drives_nothing_out():
    shown = Shown(2 * NUMBER_BYTES)
    shown.keep(ANN, b"a", [clip(1)])
    shown.keep(ANN, b"b", [clip(2), clip(1)])
    assert shown.find(ANN, b"a") is not None
    assert shown.find(ANN, b"b") is None
    shown.keep(ANN, b"c", [clip(2)])
    assert shown.find(ANN, b"c") is not None


@pytest.mark.parametrize("n_times", [1, 2])
def test_what_is_kept_again_counts_once(n_times):
    shown = Shown(100)
    for _ in range(n_times):
        shown.keep(ANN, b"a", [clip(3)])
    assert shown.n_bytes == 3 * NUMBER_BYTES


@given(
    st.lists(
        st.tuples(st.sampled_from([ANN, BEN]), st.binary(max_size=1), st.integers(0, 9))
    )
)
def test_it_is_never_over_its_bound_and_knows_what_it_holds(kept):
    shown = Shown(20 * NUMBER_BYTES)
    last = {}
    for owner, digest, n_numbers in kept:
        shown.keep(owner, digest, [clip(n_numbers)])
        last[owner, digest] = n_numbers
    found = {key: n for key, n in last.items() if shown.find(*key) is not None}
    assert shown.n_bytes == sum(found.values()) * NUMBER_BYTES <= 20 * NUMBER_BYTES
