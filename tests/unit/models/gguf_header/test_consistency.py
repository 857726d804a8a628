from hypothesis import given, strategies as st

from inferd.models.gguf_header.consistency import HEADS, KEY_HEADS, contradiction
from tests.cases import each_case

WHOLE = {"block_count": (4,), "embedding_length": (64,), HEADS: (4,), KEY_HEADS: (2,)}


def test_numbers_that_fit_do_not_contradict_each_other():
    assert contradiction({}) is None
    assert contradiction(WHOLE) is None


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_heads_share_their_keys_evenly(n_heads, n_keys, n_layers):
    numbers = {HEADS: (n_heads,) * n_layers, KEY_HEADS: (n_keys,)}
    assert (contradiction(numbers) is None) == (n_heads % n_keys == 0)
    numbers = {HEADS: (n_heads,), KEY_HEADS: (0, *(n_keys,) * n_layers)}
    assert (contradiction(numbers) is None) == (n_heads % n_keys == 0)


@given(st.integers(1, 64), st.integers(1, 512))
def test_heads_share_the_width_evenly_or_have_one_of_their_own(n_heads, width):
    numbers = {HEADS: (n_heads,), "embedding_length": (width,)}
    assert (contradiction(numbers) is None) == (width % n_heads == 0)
    for own in ("attention.key_length", "attention.head_dim"):
        assert contradiction({**numbers, own: (64,)}) is None


@given(st.integers(0, 200), st.integers(1, 64))
def test_an_even_part_of_a_head_turns(n_turned, n_pairs):
    width = 2 * n_pairs
    fits = n_turned % 2 == 0 and n_turned <= width
    numbers = {"rope.dimension_count": (n_turned,), "attention.key_length": (width,)}
    assert (contradiction(numbers) is None) == fits


@given(st.integers(2, 64), st.integers(0, 80))
def test_some_of_the_experts_are_used(n_experts, n_used):
    numbers = {"expert_count": (n_experts,), "expert_used_count": (n_used,)}
    assert (contradiction(numbers) is None) == (1 <= n_used <= n_experts)


@each_case(
    ("changed", "reason"),
    [
        ({HEADS: (4, 4, 4)}, "4 layers have 3 numbers of attention.head_count"),
        ({"feed_forward_length": (1, 2)}, "4 layers have 2 numbers of feed_forward"),
        ({"nextn_predict_layers": (5,)}, "5 of 4 layers predict"),
        ({"rope.dimension_count": (18,)}, "18 of a head's 16 dimensions are rotated"),
        ({"rope.dimension_count_swa": (7,)}, "rope.dimension_count_swa is odd"),
        ({"image_size": (10,), "patch_size": (11,)}, "patches of 11 pixels"),
    ],
)
def test_numbers_that_contradict_others_are_named(changed, reason):
    found = contradiction(WHOLE | changed)
    assert found is not None
    assert found.startswith(reason)
