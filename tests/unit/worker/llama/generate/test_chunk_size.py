from hypothesis import example, given, strategies as st

from inferd.limits.worker import (
    PREFILL_ALONE_S,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_STALL_S,
    PREFILL_TILE_TOKENS,
)
from inferd.worker.llama.generate.chunk_size import ChunkSizer

N_MOST = 512


def test_nothing_is_known_before_the_first_batch():
    assert ChunkSizer(N_MOST).chunk == PREFILL_CHUNK_MIN_TOKENS


def test_a_chunk_takes_the_time_that_others_may_wait():
    pace = ChunkSizer(N_MOST)
    pace.observe(100, 0.4)
    assert pace.chunk == int(PREFILL_STALL_S / 0.004)


def test_a_chunk_takes_no_longer_than_it_may():
    pace = ChunkSizer(N_MOST, stall_s=0.04)
    pace.observe(100, 0.1)
    assert pace.chunk == 40


def test_a_large_chunk_is_whole_tiles():
    pace = ChunkSizer(N_MOST)
    pace.observe(100, 0.1)
    assert pace.chunk == 2 * PREFILL_TILE_TOKENS  # 150 tokens would take as long
    assert pace.chunk_alone == N_MOST


def test_small_batches_tell_nothing():
    pace = ChunkSizer(N_MOST)
    pace.observe(100, 0.4)
    known = pace.chunk
    pace.observe(1, 10.0)
    assert pace.chunk == known


def test_a_prompt_that_gets_slower_gets_smaller_chunks():
    pace = ChunkSizer(N_MOST)
    chunks = []
    for seconds in (0.1, 0.2, 0.4, 0.8):
        pace.observe(64, seconds)
        chunks.append(pace.chunk)
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[-1] < chunks[0] / 2


@given(
    token_s=st.floats(1e-5, 1.0),
    doubles_at=st.integers(3500, 100_000),
    depths=st.lists(st.integers(0, 128 * 1024), min_size=1, max_size=20),
)
@example(token_s=1e-3, doubles_at=3500, depths=[8000])
def test_a_step_alone_is_in_time_wherever_it_is_and_if_the_machine_slows_down_to_half(
    token_s, doubles_at, depths
):
    pace = ChunkSizer(N_MOST)
    pace.observe(100, 100 * token_s)
    for depth in depths:
        pace.depth = depth
        took = token_s * (1 + depth / doubles_at)
        n_tokens = pace.chunk_alone
        if n_tokens > PREFILL_TILE_TOKENS:
            assert 2 * n_tokens * took <= PREFILL_ALONE_S * 1.001
        elif n_tokens > PREFILL_CHUNK_MIN_TOKENS:
            assert n_tokens * took <= PREFILL_ALONE_S * 1.001
        pace.observe(n_tokens, n_tokens * took)


def test_a_whole_tile_is_read_alone_as_long_as_it_is_in_time():
    pace = ChunkSizer(N_MOST)
    pace.observe(PREFILL_TILE_TOKENS, PREFILL_ALONE_S - 0.01)
    assert pace.chunk_alone == PREFILL_TILE_TOKENS
    pace.observe(PREFILL_TILE_TOKENS, PREFILL_ALONE_S + 0.2)
    assert pace.chunk_alone < PREFILL_TILE_TOKENS


def test_while_a_request_is_awaited_a_step_is_short():
    pace = ChunkSizer(N_MOST)
    pace.observe(100, 0.1)
    pace.is_awaited = True
    assert pace.chunk_alone == pace.chunk < N_MOST


@given(st.lists(st.tuples(st.integers(1, N_MOST), st.floats(1e-9, 1e3)), max_size=20))
def test_a_chunk_fits_into_a_batch_and_is_never_nothing(batches):
    pace = ChunkSizer(N_MOST)
    for n_tokens, seconds in batches:
        pace.observe(n_tokens, seconds)
        assert PREFILL_CHUNK_MIN_TOKENS <= pace.chunk <= N_MOST
