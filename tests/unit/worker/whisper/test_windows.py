from hypothesis import given, strategies as st

from inferd.worker.whisper.sound import MS, RATE
from inferd.worker.whisper.windows import (
    CHUNK,
    LEFT_MS,
    WINDOW,
    after,
    ahead_at,
    window_at,
)

LEAST = WINDOW - CHUNK - LEFT_MS * MS
TICK_MS = 10
TICKS_LEFT = 10
"""Of the library: it begins no chunk where so many are left."""


@given(st.integers(1, WINDOW))
def test_a_sound_that_fits_is_one_window_without_a_limit(n_samples):
    window = window_at(0, n_samples)
    assert (window.first, window.n_samples, window.limit_ms) == (0, n_samples, 0)
    assert after(window, 0) == window.n_settled == n_samples


@given(st.integers(WINDOW + 1, 20 * WINDOW), st.data())
def test_windows_leave_nothing_out_and_come_to_an_end(n_samples, data):
    first, n_windows = 0, 0
    while first < n_samples:
        window = window_at(first, n_samples)
        assert window.first == first
        assert window.n_samples <= WINDOW
        end_ms = first // MS + data.draw(st.integers(0, 700_000))
        following = after(window, end_ms)
        assert window.n_settled <= following <= first + window.n_samples
        is_cut = n_samples - first > WINDOW
        assert window.n_settled == (first + LEAST if is_cut else n_samples)
        assert following >= min(n_samples, first + LEAST)
        first, n_windows = following, n_windows + 1
    assert first == n_samples
    assert n_windows <= n_samples // LEAST + 1


@given(st.integers(WINDOW + 1, 3 * WINDOW), st.integers(0, (WINDOW - 1) // MS))
def test_every_chunk_of_a_window_with_a_limit_sees_its_whole_half_minute(
    n_samples, place_ms
):
    window = window_at(0, n_samples)
    if place_ms < window.limit_ms:
        assert place_ms * MS + 30 * RATE <= window.n_samples


@given(st.integers(2 * CHUNK, WINDOW), st.data())
def test_the_next_window_begins_where_the_library_stopped_or_before(n_ahead, data):
    window = ahead_at(0, n_ahead)
    n_ticks = window.limit_ms // TICK_MS - TICKS_LEFT
    stopped_ms = TICK_MS * data.draw(
        st.integers(n_ticks, n_ticks + CHUNK // MS // TICK_MS)
    )
    said_ms = data.draw(st.integers(0, stopped_ms))
    assert after(window, stopped_ms) == stopped_ms * MS
    assert said_ms * MS <= after(window, said_ms) <= stopped_ms * MS


@given(
    st.integers(0, WINDOW // MS),
    st.integers(0, (WINDOW - CHUNK) // MS),
    st.integers(0, CHUNK // MS),
)
def test_the_next_window_begins_where_the_last_segment_ends(first_ms, before, beyond):
    window = window_at(first_ms * MS, 3 * WINDOW)
    heard_ms = first_ms + window.limit_ms - LEFT_MS
    assert after(window, heard_ms + beyond) == (heard_ms + beyond) * MS
    assert after(window, heard_ms - before) == heard_ms * MS


@given(st.integers(0, 3 * WINDOW), st.integers(2 * CHUNK, 3 * WINDOW))
def test_of_what_has_come_every_chunk_that_begins_is_there_whole(first, n_ahead):
    window = ahead_at(first, first + n_ahead)
    assert window.first + window.n_samples <= first + n_ahead
    assert window.n_samples <= WINDOW
    assert 0 < window.limit_ms * MS <= window.n_samples - CHUNK
    assert after(window, 0) > first
