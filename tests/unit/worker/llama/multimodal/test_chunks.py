import gc
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hypothesis import given, strategies as st

from inferd.worker.llama.multimodal.chunks import ChunkList, MediaChunk, MropeGrid

PLACES = st.integers(1, 9)


@given(PLACES, st.integers(0, 99))
def test_places_stand_one_behind_the_other_unless_they_are_in_a_grid(n_tokens, at):
    clip = MediaChunk(n_tokens, is_atomic=False)
    assert clip.n_positions == n_tokens
    assert clip.positions(at).tolist() == [list(range(at, at + n_tokens))]
    assert clip.positions(at).dtype == np.int32


@given(PLACES, PLACES, st.integers(0, 99))
def test_a_grid_goes_on_with_the_prompt_where_it_has_a_slope(width, height, at):
    n_tokens = width * height
    base = np.arange(4 * n_tokens, dtype=np.int32).reshape(4, n_tokens)
    slope = np.zeros_like(base)
    slope[:3] = 1
    clip = MediaChunk(
        n_tokens, is_atomic=True, grid=MropeGrid(base, slope, max(width, height))
    )
    assert clip.n_positions == max(width, height)
    assert (clip.positions(at)[:3] == base[:3] + at).all()
    assert (clip.positions(at)[3] == base[3]).all()


def test_a_list_of_parts_is_freed_with_the_last_of_them():
    freed: list[int] = []
    library: Any = SimpleNamespace(
        mtmd_input_chunks_init=lambda: 7,
        mtmd_input_chunks_free=freed.append,
        mtmd_input_chunks_size=lambda _: 2,
        mtmd_input_chunks_get=lambda _, index: 100 + index,
    )
    chunks = ChunkList(cast("Any", library))
    parts = [MediaChunk(1, is_atomic=False, source=(each, chunks)) for each in chunks]
    del chunks
    assert [part.source and part.source[0] for part in parts] == [100, 101]
    parts.pop()
    gc.collect()
    assert freed == []
    parts[0].source = None
    gc.collect()
    assert freed == [7]
