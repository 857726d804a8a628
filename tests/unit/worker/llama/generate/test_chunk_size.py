from hypothesis import given, strategies as st

from inferd.limits.worker import (
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


@given(st.lists(st.tuples(st.integers(1, N_MOST), st.floats(1e-9, 1e3)), max_size=20))
def test_a_chunk_fits_into_a_batch_and_is_never_nothing(batches):
    pace = ChunkSizer(N_MOST)
    for n_tokens, seconds in batches:
        pace.observe(n_tokens, seconds)
        assert PREFILL_CHUNK_MIN_TOKENS <= pace.chunk <= N_MOST
