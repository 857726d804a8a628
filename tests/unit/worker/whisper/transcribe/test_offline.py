from typing import Any

import numpy as np
import pytest

from inferd.worker.whisper.transcribe import windows
from inferd.worker.whisper.transcribe.audio import (
    SAMPLE_RATE,
    SAMPLES_PER_MS,
    AudioFile,
)
from inferd.worker.whisper.transcribe.inference import (
    InferenceOptions,
    Piece,
    TextToken,
)
from inferd.worker.whisper.transcribe.offline import (
    transcribe_recording,
    transcribe_window,
)
from inferd.worker.whisper.transcribe.scheduler import JobThread, always
from inferd.worker.whisper.transcribe.session import PreparedSpeech
from inferd.worker.whisper.transcribe.windows import LIMIT_MARGIN_MS, Window
from tests.unit.worker.whisper.models import RECITED_MS
from tests.unit.worker.whisper.noted import NotedSession
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
    assert heard.n_bytes_read == 35 * SAMPLE_RATE * 4


@pytest.mark.long
def test_a_long_sound_is_heard_in_windows(backend, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_SAMPLES", 50 * SAMPLE_RATE)
    heard = hear(backend, noise(85), **SURE)
    assert (heard.end.stop_reason, heard.end.audio_ms) == ("end", 85_000)
    assert heard.n_bytes_read == 85 * SAMPLE_RATE * 4
    assert max(each.end_ms for each in heard.segments) > 50_000
    times = [time for each in heard.segments for time in (each.start_ms, each.end_ms)]
    assert times == sorted(times)


@pytest.mark.parametrize("beyond_ms", [10, 60, 110])
def test_a_window_begins_where_the_last_one_ends_though_it_ends_before_its_limit(
    reciter, monkeypatch, beyond_ms
):
    limit_ms = RECITED_MS + beyond_ms
    monkeypatch.setattr(
        windows, "WINDOW_SAMPLES", windows.CHUNK_SAMPLES + limit_ms * SAMPLES_PER_MS
    )
    heard = hear(reciter, noise(60))
    assert [each.start_ms for each in heard.segments][:3] == [0, 2020, RECITED_MS]


@pytest.mark.long
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
    prepared.audio.n_samples += 1
    backend.start(1, prepared)
    failure = run(backend)[1].failure
    assert (failure.by_request, failure.reason) == (
        True,
        'attachment "a" ends before sample 32001',
    )


# --- what the library is asked ----------------------------------------------------------


class NotedTurn(JobThread):
    """Is given back, and there again."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None)
        self.done: list[str] = []

    def yield_control(self, until=always, free=None) -> None:
        self.done.append("yield")


class Windowed(NotedSession):
    """Hears a word in each window, from 10 s to 30 s."""

    def __init__(self, model, seconds: int, **fields) -> None:
        samples = np.zeros(seconds * SAMPLE_RATE, np.float32)
        sound = AudioFile(descriptor(samples), "a", len(samples))
        speech = PreparedSpeech(job(samples, **fields), sound, ())
        turn = NotedTurn()
        super().__init__(model, speech, turn)
        self.done = turn.done
        self.settled_s: list[float] = []

    def run(self, samples, options, on_segment) -> None:
        super().run(samples, options, on_segment)
        self.settled_s.append(self.segments.n_bytes_read / SAMPLE_RATE / 4)
        on_segment([Piece(b"word", 10_000, 30_000, None, (TextToken(7, b"word"),))])


@pytest.fixture
def noted(loaded_small, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_SAMPLES", 50 * SAMPLE_RATE)
    return lambda *seconds, **fields: Windowed(loaded_small._model, *seconds, **fields)


WINDOW = ["detect", "fix", "run"]
"""The calls for one window: the language detected in the first is kept for all."""


def test_each_window_goes_on_where_the_last_one_ended(noted):
    session = noted(85)
    transcribe_recording(session, prompt=(1, 2))
    assert session.asked == [
        (50, InferenceOptions(prompt=(1, 2), limit_ms=20_000)),
        (50, InferenceOptions(keeps_context=True, limit_ms=20_000)),
        (25, InferenceOptions(keeps_context=True)),
    ]
    left_s = LIMIT_MARGIN_MS / 1000
    assert session.settled_s == pytest.approx([20 - left_s, 50 - left_s, 85])
    assert session.n_samples_done == 85 * SAMPLE_RATE
    segments = session.segments.take().segments
    assert [each.start_ms for each in segments] == [10_000, 40_000, 70_000]


def test_between_two_windows_others_compute_and_what_was_heard_is_told(noted):
    session = noted(85)
    transcribe_recording(session)
    assert session.done == [*WINDOW, "send", "yield", *WINDOW, "send", "yield", *WINDOW]


def test_what_is_left_of_a_sound_begins_with_what_was_said_before(noted):
    session = noted(85)
    transcribe_recording(session, first=60 * SAMPLE_RATE, prompt=(1, 2))
    assert session.asked == [(25, InferenceOptions(prompt=(1, 2)))]
    assert session.done == ["send", "yield", *WINDOW]


def test_nothing_is_listened_to_for_tokens_that_nobody_wants(noted):
    session = noted(85, max_tokens=1)
    transcribe_recording(session)
    assert len(session.asked) == 1


@pytest.mark.parametrize(
    ("timestamps", "by_word"), [("word", True), ("segment", False)]
)
def test_words_are_asked_for_one_by_one_where_each_shall_have_its_times(
    noted, timestamps, by_word
):
    session = noted(40, timestamps=timestamps)
    assert transcribe_window(
        session, Window(0, 40 * SAMPLE_RATE), InferenceOptions(prompt=(1,))
    ) == [7]
    assert session.asked == [(40, InferenceOptions(prompt=(1,), by_word=by_word))]
