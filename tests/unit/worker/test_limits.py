from inferd.worker import limits
from tests.unit.bounds import unexplained


def test_every_bound_says_what_it_is_for():
    assert unexplained(limits) == []


def test_a_prompt_may_take_smaller_steps_while_others_stream():
    assert limits.PREFILL_CHUNK_MIN_TOKENS < limits.PREFILL_CHUNK_TOKENS
