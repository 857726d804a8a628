from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, strategies as st

from inferd.worker.limits import (
    FORCED_TOKENS,
    OUTPUTS_PER_SLOT,
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_CHUNK_TOKENS,
    PREFILL_STALL_S,
)
from inferd.worker.llama.clips import Clip
from inferd.worker.llama.pace import Pace
from inferd.worker.llama.plan import plan
from inferd.worker.llama.sequence import Sequence
from inferd.worker.llama.spans import Span


def sequence(n_prompt, n_cached=0, n_written=0, drafts=(), guesses=()) -> Sequence:
    prepared: Any = SimpleNamespace(
        tokens=[1] * n_prompt, prompt_tokens=n_prompt, max_tokens=1000, spans=()
    )
    made = Sequence(0, 0, cast("Any", prepared), n_reused=n_cached)
    made.tokens += [2] * n_written
    made.drafts, made.guesses = list(drafts), list(guesses)
    return made


def with_media(made: Sequence, *spans: Span) -> Sequence:
    made.prepared.spans = spans
    return made


def stream(n_forced=1, **options) -> Sequence:
    """Make an answer of which so many tokens are not decoded yet."""
    return sequence(10, n_cached=10, n_written=n_forced, **options)


def pace(token_s=0.0) -> Pace:
    made = Pace(PREFILL_CHUNK_TOKENS)
    if token_s:
        made.observe(PREFILL_CHUNK_TOKENS, PREFILL_CHUNK_TOKENS * token_s)
    return made


def lengths(rows):
    return {id(row.sequence): row.n_tokens + len(row.drafts) for row in rows}


QUICK = pace(1e-6)
SEQUENCES = st.one_of(
    st.builds(stream, st.integers(1, 100), drafts=st.lists(st.just(7), max_size=12)),
    st.builds(sequence, st.integers(1, 900)),
)


@given(st.lists(SEQUENCES, max_size=40), st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
def test_a_batch_has_room_for_all_that_is_planned(running, token_s):
    rows = plan(running, pace(token_s), can_take_back=True)
    assert sum(lengths(rows).values()) <= PREFILL_CHUNK_TOKENS
    assert all(row.n_tokens > 0 for row in rows)
    assert all(1 + len(row.drafts) <= OUTPUTS_PER_SLOT for row in rows if row.chooses)


@given(st.lists(SEQUENCES, max_size=40), st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
def test_every_stream_goes_on_in_every_step_and_so_does_a_prompt(running, token_s):
    planned = lengths(plan(running, pace(token_s), can_take_back=True))
    streams = [each for each in running if not each.is_prefilling]
    assert all(id(each) in planned for each in streams)
    prompts = [each for each in running if each.is_prefilling]
    assert not prompts or any(id(each) in planned for each in prompts)


def test_prompts_share_the_room_and_short_ones_leave_theirs_to_longer_ones():
    short, middle, long = (sequence(n) for n in (20, 3000, 5000))
    rows = plan([long, short, middle], QUICK, can_take_back=True)
    assert lengths(rows) == {id(short): 20, id(middle): 246, id(long): 246}


def test_beside_streams_prompts_get_what_may_hold_them_up():
    prompt = sequence(3000)
    rows = plan([prompt, stream()], pace(PREFILL_STALL_S / 40), can_take_back=True)
    assert lengths(rows)[id(prompt)] == 40


def test_alone_a_prompt_gets_all_that_a_slow_model_reads_in_time():
    [row] = plan([sequence(3000)], pace(PREFILL_ALONE_S / 40), can_take_back=True)
    assert row.n_tokens == 40
    [row] = plan([sequence(3000)], QUICK, can_take_back=True)
    assert row.n_tokens == PREFILL_CHUNK_TOKENS


def test_before_the_pace_is_known_little_is_read():
    [row] = plan([sequence(3000)], pace(), can_take_back=True)
    assert row.n_tokens == PREFILL_CHUNK_MIN_TOKENS


def test_what_is_forced_is_taken_a_bit_at_a_time():
    [row] = plan([stream(n_forced=100)], QUICK, can_take_back=True)
    assert (row.n_tokens, row.chooses, row.drafts) == (FORCED_TOKENS, False, [])


def test_behind_the_last_token_come_the_likely_ones_and_then_the_guesses():
    [row] = plan([stream(drafts=[5, 6], guesses=[7, 8])], QUICK, can_take_back=True)
    assert (row.chooses, row.drafts, row.n_guessed) == (True, [5, 6, 7, 8], 2)


def test_who_cannot_go_back_gets_no_drafts():
    [row] = plan([stream(drafts=[5])], QUICK, can_take_back=False)
    assert (row.chooses, row.drafts, row.n_guessed) == (True, [], 0)


def test_a_prompt_is_read_up_to_a_medium_and_goes_on_behind_it():
    picture = Span(10, Clip(4, is_whole=False))
    [before] = plan([with_media(sequence(100), picture)], QUICK, can_take_back=True)
    assert (before.n_tokens, before.chooses) == (10, False)
    behind = with_media(sequence(100, n_cached=14), picture)
    assert behind.span is None
    [row] = plan([behind], QUICK, can_take_back=True)
    assert (row.n_tokens, row.chooses) == (86, True)


def test_a_prompt_is_in_a_medium_until_all_of_it_is_read():
    pictures = [Span(2, Clip(4, is_whole=False)), Span(6, Clip(1, is_whole=False))]
    places = [with_media(sequence(9, n_cached=n), *pictures).span for n in range(9)]
    assert places == [None, None, *[pictures[0]] * 4, pictures[1], None, None]
