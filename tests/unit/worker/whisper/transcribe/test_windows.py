from hypothesis import given, strategies as st

from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE, SAMPLES_PER_MS
from inferd.worker.whisper.transcribe.windows import (
    CHUNK_SAMPLES,
    LIMIT_MARGIN_MS,
    WINDOW_SAMPLES,
    next_start,
    partial_window_at,
    window_at,
)

LEAST = WINDOW_SAMPLES - CHUNK_SAMPLES - LIMIT_MARGIN_MS * SAMPLES_PER_MS
TICK_MS = 10
TICKS_LEFT = 10
"""Of the library: it begins no chunk where so many are left."""


@given(st.integers(1, WINDOW_SAMPLES))
def test_a_sound_that_fits_is_one_window_without_a_limit(n_samples):
    window = window_at(0, n_samples)
    assert (window.first, window.n_samples, window.limit_ms) == (0, n_samples, 0)
    assert next_start(window, 0) == window.n_settled == n_samples


@given(st.integers(WINDOW_SAMPLES + 1, 20 * WINDOW_SAMPLES), st.data())
def test_windows_leave_nothing_out_and_come_to_an_end(n_samples, data):
    first, n_windows = 0, 0
    while first < n_samples:
        window = window_at(first, n_samples)
        assert window.first == first
        assert window.n_samples <= WINDOW_SAMPLES
        end_ms = first // SAMPLES_PER_MS + data.draw(st.integers(0, 700_000))
        following = next_start(window, end_ms)
        assert window.n_settled <= following <= first + window.n_samples
        is_cut = n_samples - first > WINDOW_SAMPLES
        assert window.n_settled == (first + LEAST if is_cut else n_samples)
        assert following >= min(n_samples, first + LEAST)
        first, n_windows = following, n_windows + 1
    assert first == n_samples
    assert n_windows <= n_samples // LEAST + 1


@given(
    st.integers(WINDOW_SAMPLES + 1, 3 * WINDOW_SAMPLES),
    st.integers(0, (WINDOW_SAMPLES - 1) // SAMPLES_PER_MS),
)
def test_every_chunk_of_a_window_with_a_limit_sees_its_whole_half_minute(
    n_samples, place_ms
):
    window = window_at(0, n_samples)
    if place_ms < window.limit_ms:
        assert place_ms * SAMPLES_PER_MS + 30 * SAMPLE_RATE <= window.n_samples


@given(st.integers(2 * CHUNK_SAMPLES, WINDOW_SAMPLES), st.data())
def test_the_next_window_begins_where_the_library_stopped_or_before(n_ahead, data):
    window = partial_window_at(0, n_ahead)
    n_ticks = window.limit_ms // TICK_MS - TICKS_LEFT
    stopped_ms = TICK_MS * data.draw(
        st.integers(n_ticks, n_ticks + CHUNK_SAMPLES // SAMPLES_PER_MS // TICK_MS)
    )
    said_ms = data.draw(st.integers(0, stopped_ms))
    assert next_start(window, stopped_ms) == stopped_ms * SAMPLES_PER_MS
    assert (
        said_ms * SAMPLES_PER_MS
        <= next_start(window, said_ms)
        <= stopped_ms * SAMPLES_PER_MS
    )


@given(
    st.integers(0, WINDOW_SAMPLES // SAMPLES_PER_MS),
    st.integers(0, (WINDOW_SAMPLES - CHUNK_SAMPLES) // SAMPLES_PER_MS),
    st.integers(0, CHUNK_SAMPLES // SAMPLES_PER_MS),
)
def test_the_next_window_begins_where_the_last_segment_ends(first_ms, before, beyond):
    window = window_at(first_ms * SAMPLES_PER_MS, 3 * WINDOW_SAMPLES)
    heard_ms = first_ms + window.limit_ms - LIMIT_MARGIN_MS
    assert next_start(window, heard_ms + beyond) == (heard_ms + beyond) * SAMPLES_PER_MS
    assert next_start(window, heard_ms - before) == heard_ms * SAMPLES_PER_MS


@given(
    st.integers(0, 3 * WINDOW_SAMPLES),
    st.integers(2 * CHUNK_SAMPLES, 3 * WINDOW_SAMPLES),
)
def test_of_what_has_come_every_chunk_that_begins_is_there_whole(first, n_ahead):
    window = partial_window_at(first, first + n_ahead)
    assert window.first + window.n_samples <= first + n_ahead
    assert window.n_samples <= WINDOW_SAMPLES
    assert 0 < window.limit_ms * SAMPLES_PER_MS <= window.n_samples - CHUNK_SAMPLES
    assert next_start(window, 0) > first
