from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, strategies as st

from inferd.limits.worker import (
    FORCED_TOKENS,
    OUTPUTS_PER_SLOT,
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_CHUNK_TOKENS,
    PREFILL_STALL_S,
)
from inferd.worker.llama.generate.batch_plan import plan_batch
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.multimodal.chunks import MediaChunk
from inferd.worker.llama.multimodal.prompt_spans import MediaSpan


def sequence(
    n_prompt, n_cached=0, n_written=0, drafts=(), guesses=()
) -> RunningSequence:
    prepared: Any = SimpleNamespace(
        tokens=[1] * n_prompt,
        prompt_tokens=n_prompt,
        job=None,
        max_tokens=1000,
        spans=(),
    )
    made = RunningSequence(0, 0, cast("Any", prepared), n_reused=n_cached)
    made.tokens += [2] * n_written
    made.likely_tokens, made.drafted_tokens = list(drafts), list(guesses)
    return made


def with_media(made: RunningSequence, *spans: MediaSpan) -> RunningSequence:
    made.prepared.spans = spans
    return made


def stream(n_forced=1, **options) -> RunningSequence:
    """Make an answer of which so many tokens are not decoded yet."""
    return sequence(10, n_cached=10, n_written=n_forced, **options)


def pace(token_s=0.0) -> ChunkSizer:
    made = ChunkSizer(PREFILL_CHUNK_TOKENS)
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
def test_planned_tokens_fit_the_batch(running, token_s):
    rows = plan_batch(running, pace(token_s), can_roll_back=True)
    assert sum(lengths(rows).values()) <= PREFILL_CHUNK_TOKENS
    assert all(row.n_tokens > 0 for row in rows)
    assert all(
        1 + len(row.drafts) <= OUTPUTS_PER_SLOT for row in rows if row.is_sampled
    )


@given(st.lists(SEQUENCES, max_size=40), st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
def test_every_stream_goes_on_in_every_step_and_so_does_a_prompt(running, token_s):
    planned = lengths(plan_batch(running, pace(token_s), can_roll_back=True))
    streams = [each for each in running if not each.is_prefilling]
    assert all(id(each) in planned for each in streams)
    prompts = [each for each in running if each.is_prefilling]
    assert not prompts or any(id(each) in planned for each in prompts)


def test_prompts_share_the_room_and_short_ones_leave_theirs_to_longer_ones():
    short, middle, long = (sequence(n) for n in (20, 3000, 5000))
    rows = plan_batch([long, short, middle], QUICK, can_roll_back=True)
    assert lengths(rows) == {id(short): 20, id(middle): 246, id(long): 246}


def test_beside_streams_prompts_get_a_limited_chunk():
    prompt = sequence(3000)
    rows = plan_batch(
        [prompt, stream()], pace(PREFILL_STALL_S / 40), can_roll_back=True
    )
    assert lengths(rows)[id(prompt)] == 40


def test_alone_a_prompt_gets_all_that_a_slow_model_reads_in_time():
    [row] = plan_batch([sequence(3000)], pace(PREFILL_ALONE_S / 40), can_roll_back=True)
    assert row.n_tokens == 40
    [row] = plan_batch([sequence(3000)], QUICK, can_roll_back=True)
    assert row.n_tokens == PREFILL_CHUNK_TOKENS


def test_before_the_pace_is_known_little_is_read():
    [row] = plan_batch([sequence(3000)], pace(), can_roll_back=True)
    assert row.n_tokens == PREFILL_CHUNK_MIN_TOKENS


def test_forced_text_is_limited_per_step():
    [row] = plan_batch([stream(n_forced=100)], QUICK, can_roll_back=True)
    assert (row.n_tokens, row.is_sampled, row.drafts) == (FORCED_TOKENS, False, [])


def test_likely_tokens_come_before_drafted_ones():
    [row] = plan_batch(
        [stream(drafts=[5, 6], guesses=[7, 8])], QUICK, can_roll_back=True
    )
    assert (row.is_sampled, row.drafts, row.n_drafted) == (True, [5, 6, 7, 8], 2)


def test_without_rollback_there_are_no_drafts():
    [row] = plan_batch([stream(drafts=[5])], QUICK, can_roll_back=False)
    assert (row.is_sampled, row.drafts, row.n_drafted) == (True, [], 0)


def test_a_prompt_is_read_up_to_a_medium_and_goes_on_behind_it():
    picture = MediaSpan(10, MediaChunk(4, is_atomic=False))
    [before] = plan_batch(
        [with_media(sequence(100), picture)], QUICK, can_roll_back=True
    )
    assert (before.n_tokens, before.is_sampled) == (10, False)
    behind = with_media(sequence(100, n_cached=14), picture)
    assert behind.span is None
    [row] = plan_batch([behind], QUICK, can_roll_back=True)
    assert (row.n_tokens, row.is_sampled) == (86, True)


def test_a_sequence_is_in_a_chunk_until_all_of_it_is_decoded():
    pictures = [
        MediaSpan(2, MediaChunk(4, is_atomic=False)),
        MediaSpan(6, MediaChunk(1, is_atomic=False)),
    ]
    places = [with_media(sequence(9, n_cached=n), *pictures).span for n in range(9)]
    assert places == [None, None, *[pictures[0]] * 4, pictures[1], None, None]
