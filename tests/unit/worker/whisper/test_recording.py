from typing import Any

import pytest

from inferd.worker.whisper import windows
from inferd.worker.whisper.sound import MS, RATE
from tests.unit.worker.whisper.models import RECITED_MS
from tests.unit.worker.whisper.running import descriptor, hear, job, noise, run

pytestmark = pytest.mark.slow

SURE: dict[str, Any] = {"temperature": 2.0}
"""Nonsense is tried again at every lower temperature."""


def test_a_sound_is_heard_to_its_end_with_times_that_never_go_back(backend):
    heard = hear(backend, noise(35), **SURE)
    times = [time for each in heard.segments for time in (each.start_ms, each.end_ms)]
    assert times == sorted(times)
    assert all(0 <= time <= 35_000 for time in times)
    assert heard.n_tokens == heard.end.usage.completion_tokens > 0
    assert heard.end.usage.prompt_tokens == 35 * 50
    assert (heard.end.stop_reason, heard.end.audio_ms) == ("end", 35_000)
    assert heard.n_bytes_read == 35 * RATE * 4


def test_a_long_sound_is_heard_in_windows(backend, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 50 * RATE)
    heard = hear(backend, noise(85), **SURE)
    assert (heard.end.stop_reason, heard.end.audio_ms) == ("end", 85_000)
    assert heard.n_bytes_read == 85 * RATE * 4
    assert max(each.end_ms for each in heard.segments) > 50_000
    times = [time for each in heard.segments for time in (each.start_ms, each.end_ms)]
    assert times == sorted(times)


@pytest.mark.parametrize("beyond_ms", [10, 60, 110])
def test_a_window_begins_where_the_last_one_ends_though_it_ends_before_its_limit(
    reciter, monkeypatch, beyond_ms
):
    limit_ms = RECITED_MS + beyond_ms
    monkeypatch.setattr(windows, "WINDOW", windows.CHUNK + limit_ms * MS)
    heard = hear(reciter, noise(60))
    assert [each.start_ms for each in heard.segments][:3] == [0, 2020, RECITED_MS]


def test_no_more_tokens_are_heard_than_are_wanted(backend):
    assert hear(backend, noise(35), **SURE).n_tokens > 1
    heard = hear(backend, noise(35), temperature=2.0, max_tokens=1)
    assert heard.n_tokens == heard.end.usage.completion_tokens == 1
    assert heard.end.stop_reason == "length"


def test_words_come_one_by_one(backend):
    heard = hear(backend, noise(5), timestamps="word", **SURE)
    plain = hear(backend, noise(5), **SURE)
    assert heard.n_tokens == plain.n_tokens
    assert len(heard.segments) >= len(plain.segments)
    assert heard.text == plain.text


def test_a_sound_that_ends_too_soon_is_the_requests_fault(backend):
    samples = noise(2)
    prepared = backend.prepare(job(samples), [descriptor(samples)])
    prepared.sound.n_samples += 1
    backend.start(1, prepared)
    failure = run(backend)[1].failure
    assert (failure.by_request, failure.reason) == (
        True,
        'attachment "a" ends too soon',
    )
