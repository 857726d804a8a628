from hypothesis import given, strategies as st

from inferd.limits.worker import DRAFT_COST, PROBE_STEPS
from inferd.worker.llama.speculation.acceptance import AcceptanceRate, BatchCosts

AT_MOST = 8


def costs(of_token, of_round=0.0):
    known = BatchCosts()
    for _ in range(100):
        for n_tokens in (1, *range(2, 10), 32, 64, 96, 128):
            known.observe(n_tokens, 0.01 * (1 + of_token * (n_tokens - 1)))
    known.draft_round_s = 0.01 * of_round
    return known


CHEAP = costs(0.1)
DEAR = costs(0.9)
SLOW = costs(0.1, of_round=1.5)


def trust(*outcomes):
    held = AcceptanceRate()
    for n_drafted, n_accepted in outcomes:
        held.observe(n_drafted, n_accepted)
    return held


def n_drafts(held, known=CHEAP, *, n_streams=1, at_most=AT_MOST):
    return held.n_drafts(known, n_streams=n_streams, at_most=at_most)


OUTCOMES = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    max_size=30,
)


# --- costs ----------------------------------------------------------------------------


def test_the_cost_of_a_batch_is_what_was_believed_until_it_is_seen():
    known = BatchCosts()
    for _ in range(100):
        known.observe(1, 0.01)
    assert known.of_batch(1) == 1
    assert known.of_batch(5) == 1 + 4 * DRAFT_COST


@given(st.lists(st.floats(1, 8), min_size=8, max_size=8), st.floats(1e-4, 1))
def test_the_cost_of_a_batch_is_learnt_for_each_size(steps, step_s):
    known = BatchCosts()
    for _ in range(300):
        known.observe(1, step_s)
        for n_tokens, each in enumerate(steps, 8):
            known.observe(n_tokens, step_s * each)
    for n_tokens, each in enumerate(steps, 8):
        assert abs(known.of_batch(n_tokens) - each) < 0.1 * each


def test_larger_batches_are_thought_to_be_like_smaller_ones_that_are_known():
    assert abs(costs(0.1).of_batch(20) - 2.9) < 0.1


def test_a_machine_that_gets_slower_changes_no_cost():
    known = costs(0.3)
    for _ in range(200):
        known.observe(1, 0.05)
    before = known.of_batch(4)
    known.observe(4, 0.05 * before)
    assert abs(known.of_batch(4) - before) < 0.01


@given(st.lists(st.tuples(st.integers(1, 512), st.floats(0, 1e3)), max_size=40))
def test_whatever_batches_take_no_token_costs_more_than_a_step(batches):
    known = BatchCosts()
    known.draft_round_s = 0.01
    for n_tokens, seconds in batches:
        known.observe(n_tokens, seconds)
        assert all(1 <= known.of_batch(n) <= n for n in (1, 2, 9, 127, 600))
        assert known.of_round >= 0


# --- how many -------------------------------------------------------------------------


@given(OUTCOMES, st.integers(1, 32), st.integers(0, 9))
def test_no_draft_is_longer_than_its_limit(outcomes, n_streams, at_most):
    n = n_drafts(trust(*outcomes), n_streams=n_streams, at_most=at_most)
    assert 0 <= n <= at_most


@given(OUTCOMES)
def test_the_more_come_true_the_more_are_guessed(outcomes):
    worse = n_drafts(trust(*outcomes, (1, 0)))
    assert worse <= n_drafts(trust(*outcomes)) <= n_drafts(trust(*outcomes, (1, 1)))


@given(OUTCOMES, st.integers(1, 31))
def test_the_more_streams_there_are_the_fewer_are_guessed(outcomes, n_streams):
    few, many = (n_drafts(trust(*outcomes), n_streams=n) for n in (n_streams, 32))
    assert many <= few


@given(OUTCOMES)
def test_the_more_a_token_costs_the_fewer_are_guessed(outcomes):
    cheap, dear, slow = (
        n_drafts(trust(*outcomes), each) for each in (CHEAP, DEAR, SLOW)
    )
    assert max(dear, slow) <= cheap


def test_good_drafts_are_as_long_as_saves_time():
    assert n_drafts(trust(*[(8, 8)] * 20)) == AT_MOST
    assert n_drafts(AcceptanceRate(), costs(0.5)) == 2


def test_with_more_streams_a_draft_needs_a_higher_rate():
    held = trust(*[(1, 1)] * 3)
    n_streams = [1, 2, 4, 8, 16]
    asked = [n_drafts(held, costs(0.5), n_streams=n) for n in n_streams]
    assert asked[0] > asked[2] >= asked[-1] == 0


def test_after_rejected_drafts_one_is_probed_now_and_then():
    poor = trust(*[(3, 0)] * 60)
    asked = [n_drafts(poor) for _ in range(PROBE_STEPS + 2)]
    assert asked == [0] * PROBE_STEPS + [1, 1]  # until there is one
    poor.observe(1, 0)
    assert n_drafts(poor) == 0


def test_one_that_comes_true_in_the_end_brings_more():
    held = trust(*[(3, 0)] * 60)
    for _ in range(20):
        held.observe(1, 1)
    assert n_drafts(held) > 1
