from hypothesis import given, strategies as st

from inferd.slopes import Line, Sample, line_over

small = st.integers(0, 10**6)
lines = st.builds(Line, fixed=small, per_slot=small, per_token=small)


@given(one=lines, other=lines, n_slots=small, n_tokens=small)
def test_lines_add_up(one, other, n_slots, n_tokens):
    together = one.at(n_slots, n_tokens) + other.at(n_slots, n_tokens)
    assert (one + other).at(n_slots, n_tokens) == together


@given(
    truth=lines,
    points=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10**6)), min_size=1),
)
def test_no_sample_is_above_its_line(truth, points):
    samples = [Sample(n, tokens, truth.at(n, tokens)) for n, tokens in points]
    line = line_over(samples)
    assert all(line.at(each.n_slots, each.n_tokens) >= each.n_bytes for each in samples)


@given(truth=lines, n_slots=st.integers(2, 256), n_tokens=st.integers(2, 10**6))
def test_three_samples_tell_a_true_line(truth, n_slots, n_tokens):
    points = [(1, 1), (1, n_tokens), (n_slots, n_tokens)]
    samples = [Sample(n, tokens, truth.at(n, tokens)) for n, tokens in points]
    assert line_over(samples) == truth


@given(
    numbers=st.lists(st.integers(1, 10**5), min_size=2, max_size=5, unique=True),
    square=st.integers(0, 9),
    between=st.floats(0, 1),
)
def test_what_grows_by_the_square_stays_below_its_line(numbers, square, between):
    line = line_over([Sample(1, each, square * each**2) for each in numbers])
    least, most = min(numbers), max(numbers)
    n_tokens = least + int(between * (most - least))
    assert line.at(1, n_tokens) >= square * n_tokens**2
