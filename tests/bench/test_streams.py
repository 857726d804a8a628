import pytest
from hypothesis import given, strategies as st

from bench.load.scene import Answer
from bench.streams import (
    TooShortError,
    character_rate,
    decode_rate,
    first_token_s,
    prefill_rate,
    rate_between,
    together_rate,
    whole_rate,
    worst_gap_s,
)


def answer(*times, sent_at=0.0, n_tokens=0, **more):
    return Answer(
        sent_at=sent_at,
        times=list(times),
        lengths=[4] * len(times),
        text="abcd" * len(times),
        n_tokens=n_tokens or len(times),
        **more,
    )


def test_a_stream_is_timed_from_its_first_piece():
    assert decode_rate(answer(5.0, 6.0, 7.0)) == 1.0
    assert decode_rate(answer(5.0, 7.0, n_tokens=9)) == 4.0
    assert first_token_s(answer(5.0, 6.0, sent_at=2.0)) == 3.0


@pytest.mark.parametrize("times", [(), (1.0,)])
def test_less_than_two_pieces_have_no_speed(times):
    with pytest.raises(TooShortError):
        decode_rate(answer(*times))


def test_streams_count_while_all_of_them_run():
    first = answer(0.0, 1.0, 2.0, 3.0)
    second = answer(1.0, 2.0, 3.0, 4.0)
    assert together_rate([first, second]) == 2.0


def test_a_piece_counts_for_the_tokens_of_its_answers_average():
    stream = answer(0.0, 1.0, 2.0, n_tokens=6)
    assert together_rate([stream]) == 2.0


def test_streams_that_never_run_together_have_no_common_speed():
    with pytest.raises(TooShortError):
        together_rate([answer(0.0, 1.0), answer(1.0, 2.0)])
    with pytest.raises(TooShortError):
        together_rate([answer(0.0, 1.0), answer()])


@given(st.integers(1, 9), st.integers(2, 50), st.floats(0.01, 10))
def test_alike_streams_are_as_fast_as_one_times_their_number(n_streams, n_pieces, step):
    stream = answer(*(index * step for index in range(n_pieces)))
    assert together_rate([stream] * n_streams) == pytest.approx(
        decode_rate(stream) * n_streams
    )


def test_the_whole_counts_prompts_too():
    answers = [answer(2.0, 4.0, sent_at=1.0), answer(3.0, 5.0, sent_at=1.0)]
    assert whole_rate(answers) == 1.0


def test_a_prompt_is_timed_without_what_was_remembered():
    assert prefill_rate(answer(2.0, n_prompt=100, n_cached=60)) == 20.0


def test_characters_count_after_the_first_piece():
    assert character_rate([answer(1.0, 2.0, 3.0), answer(5.0)]) == 4.0
    with pytest.raises(TooShortError):
        character_rate([answer(5.0)])


def test_the_worst_gap_is_the_longest_that_reaches_into_the_span():
    stream = answer(0.0, 9.0, 10.0, 12.0, 12.5, 20.0)
    assert worst_gap_s(stream, 9.5, 12.4) == 2.0
    assert worst_gap_s(stream, 8.0, 12.4) == 9.0


def test_a_stream_that_stays_silent_to_the_end_is_silent_that_long():
    assert worst_gap_s(answer(0.0, 1.0), 1.0, 6.0) == 5.0


def test_a_stream_that_is_over_has_no_gap():
    with pytest.raises(TooShortError):
        worst_gap_s(answer(0.0, 1.0), 1.0, 1.0)


def test_a_rate_counts_pieces_of_its_span():
    assert rate_between(answer(0.0, 1.0, 2.0, 3.0), 0.0, 2.0) == 1.0
