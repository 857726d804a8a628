from hypothesis import given, strategies as st

from inferd.memory.linear import LinearSize, Sample, upper_bound

small = st.integers(0, 10**6)
lines = st.builds(LinearSize, fixed=small, per_slot=small, per_token=small)


@given(one=lines, other=lines, n_slots=small, n_tokens=small)
def test_linear_sizes_add_up(one, other, n_slots, n_tokens):
    together = one.at(n_slots, n_tokens) + other.at(n_slots, n_tokens)
    assert (one + other).at(n_slots, n_tokens) == together


@given(
    truth=lines,
    points=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10**6)), min_size=1),
)
def test_no_sample_is_above_the_bound(truth, points):
    samples = [Sample(n, tokens, truth.at(n, tokens)) for n, tokens in points]
    line = upper_bound(samples)
    assert all(line.at(each.n_slots, each.n_tokens) >= each.n_bytes for each in samples)


@given(truth=lines, n_slots=st.integers(2, 256), n_tokens=st.integers(2, 10**6))
def test_three_samples_determine_a_linear_size(truth, n_slots, n_tokens):
    points = [(1, 1), (1, n_tokens), (n_slots, n_tokens)]
    samples = [Sample(n, tokens, truth.at(n, tokens)) for n, tokens in points]
    assert upper_bound(samples) == truth


@given(
    numbers=st.lists(st.integers(1, 10**5), min_size=2, max_size=5, unique=True),
    square=st.integers(0, 9),
    between=st.floats(0, 1),
)
def test_quadratic_growth_stays_below_the_bound(numbers, square, between):
    line = upper_bound([Sample(1, each, square * each**2) for each in numbers])
    least, most = min(numbers), max(numbers)
    n_tokens = least + int(between * (most - least))
    assert line.at(1, n_tokens) >= square * n_tokens**2
