from typing import Any

import numpy as np
import pytest

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
from inferd.worker.whisper.transcribe.scheduler import JobThread, always
from inferd.worker.whisper.transcribe.session import (
    PreparedSpeech,
    TranscriptionSession,
)
from inferd.worker.whisper.transcribe.streaming import transcribe as hear_either
from tests.unit.worker.whisper.noted import NotedSession
from tests.unit.worker.whisper.running import (
    Heard,
    descriptor,
    hear,
    hear_live,
    job,
    noise,
    run,
)

pytestmark = pytest.mark.slow

SURE: dict[str, Any] = {"temperature": 2.0}


def test_a_sound_that_comes_bit_by_bit_is_heard_to_its_end(backend):
    samples = noise(4.5)
    heard = hear_live(backend, samples, SAMPLE_RATE, wants_partials=True, **SURE)
    assert heard.partials
    assert heard.n_tokens == heard.end.usage.completion_tokens
    assert heard.end.audio_ms == 4500
    assert heard.n_bytes_read <= samples.nbytes
    times = [time for each in heard.segments for time in (each.start_ms, each.end_ms)]
    assert times == sorted(times)
    assert all(time <= 4500 for time in times)


def test_who_wants_no_partials_has_none(backend):
    assert hear_live(backend, noise(3), SAMPLE_RATE, **SURE).partials == []


def test_a_job_that_waits_for_sound_keeps_nobody_busy(backend):
    samples = noise(3)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    assert run(backend) == {}
    backend.append_audio(1, SAMPLE_RATE * 2, is_last=False)
    assert run(backend) == {}  # half a second is not worth it
    backend.append_audio(1, SAMPLE_RATE * 4, is_last=False)
    assert backend.is_busy
    assert 1 in run(backend)
    assert not backend.is_busy
    backend.drop(1)
    backend.append_audio(1, SAMPLE_RATE * 8, is_last=True)
    assert not backend.is_busy


def test_a_sound_that_is_all_there_at_once_is_heard_like_any_other(backend):
    samples = noise(4)
    live = hear_live(backend, samples, len(samples), **SURE)
    plain = hear(backend, samples, **SURE)
    assert live.segments == plain.segments
    assert live.n_bytes_read == samples.nbytes


def test_a_sound_that_ends_without_a_sample_has_no_words(backend):
    samples = np.zeros(0, np.float32)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    backend.append_audio(1, 0, is_last=True)
    heard = run(backend)[1]
    assert (heard.text, heard.end.audio_ms, heard.end.stop_reason) == (b"", 0, "end")


def test_half_a_minute_is_left_behind_when_it_is_full(backend):
    samples = noise(41)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    backend.append_audio(1, samples.nbytes - 4, is_last=False)
    first = run(backend)[1]
    assert 0 < first.n_bytes_read <= 30 * SAMPLE_RATE * 4
    backend.append_audio(1, samples.nbytes, is_last=True)
    assert run(backend)[1].end.audio_ms == 41_000


def test_a_sample_that_nobody_can_hear_ends_it(backend):
    samples = noise(3)
    samples[40_000] = np.nan
    heard: Heard = hear_live(backend, samples, SAMPLE_RATE, **SURE)
    assert heard.failure.reason == 'attachment "a": sample 40000 is not finite'
    assert heard.failure.by_request
    assert not backend.is_busy


def test_no_more_tokens_are_heard_than_are_wanted(backend):
    heard = hear_live(backend, noise(8), 4 * SAMPLE_RATE, max_tokens=2, **SURE)
    assert heard.n_tokens == heard.end.usage.completion_tokens <= 2


def test_words_are_told_one_by_one_or_together(backend):
    samples = noise(6)
    by_word = hear_live(backend, samples, 3 * SAMPLE_RATE, timestamps="word", **SURE)
    together = hear_live(backend, samples, 3 * SAMPLE_RATE, **SURE)
    assert by_word.text == together.text
    assert len(by_word.segments) >= len(together.segments)


@pytest.mark.long
@pytest.mark.parametrize("first_s", [0, 2])
def test_what_has_come_far_ahead_is_heard_once_with_the_words_of_the_whole(
    reciter, first_s, monkeypatch
):
    samples, lengths = noise(85), []
    whole = hear(reciter, samples)
    listen = TranscriptionSession.run

    def counting(session, samples, *others):
        lengths.append(len(samples) // SAMPLE_RATE)
        listen(session, samples, *others)

    monkeypatch.setattr(TranscriptionSession, "run", counting)
    reciter.start(1, reciter.prepare(job(), [descriptor(samples)]))
    reciter.append_audio(1, first_s * SAMPLE_RATE * 4, is_last=False)
    partly = run(reciter).get(1, Heard())
    reciter.append_audio(1, samples.nbytes, is_last=False)
    ahead = run(reciter)[1]
    reciter.append_audio(1, samples.nbytes, is_last=True)
    rest = run(reciter)[1]
    assert partly.text + ahead.text + rest.text == whole.text
    assert lengths == [first_s, 85, 27, 27][not first_s :]
    assert rest.end.audio_ms == 85_000


# --- what the library is asked ----------------------------------------------------------


def word(number: int, start_ms: int) -> Piece:
    text = b" word%d." % number
    return Piece(text, start_ms, start_ms + 1000, None, (TextToken(number, text),))


class Growing(JobThread):
    """Is there again when so much more of the sound has come."""

    def __init__(self, lengths_s: list[int]) -> None:
        super().__init__(1, lambda _: None)
        self.lengths_s = lengths_s
        self.speech: PreparedSpeech

    def yield_control(self, until=always, free=None) -> None:
        if self.lengths_s:
            self.speech.audio.n_samples = self.lengths_s.pop(0) * SAMPLE_RATE
            self.speech.is_whole = not self.lengths_s
        assert until()


class Told(NotedSession):
    """Hears what it is told to, call by call."""

    def __init__(self, model, lengths_s: list[int], heard: list[Piece]) -> None:
        samples = np.zeros(lengths_s[-1] * SAMPLE_RATE, np.float32)
        is_whole = len(lengths_s) == 1
        sound = AudioFile(descriptor(samples), "a", len(samples) if is_whole else 0)
        speech = PreparedSpeech(job(samples if is_whole else None), sound, (1, 2))
        turn = Growing([] if is_whole else lengths_s)
        turn.speech = speech
        super().__init__(model, speech, turn)
        self.heard = heard

    def run(self, samples, options, on_segment) -> None:
        super().run(samples, options, on_segment)
        on_segment([self.heard.pop(0)])


def test_a_sound_that_is_there_is_heard_as_a_recording(loaded_small):
    session = Told(loaded_small._model, [40], [word(7, 0)])
    hear_either(session)
    assert session.asked == [(40, InferenceOptions(prompt=(1, 2)))]


def test_what_comes_is_heard_from_where_it_is_settled_behind_what_was_said(
    loaded_small,
):
    heard = [word(7, 0), word(7, 0), word(8, 500), word(8, 500), word(9, 0)]
    session = Told(loaded_small._model, [5, 10, 15, 20, 22], heard)
    hear_either(session)
    assert session.asked == [
        (5, InferenceOptions(prompt=(1, 2), by_word=True)),
        (10, InferenceOptions(prompt=(1, 2), by_word=True)),
        (14, InferenceOptions(prompt=(1, 2, 7), by_word=True)),
        (19, InferenceOptions(prompt=(1, 2, 7), by_word=True)),
        (19.5, InferenceOptions(prompt=(1, 2, 7, 8))),
    ]
    segments = session.segments.take().segments
    assert [each.start_ms for each in segments] == [0, 1500, 2500]
    assert session.n_samples_done == 22_000 * SAMPLES_PER_MS


def test_a_language_is_kept_once_something_is_settled(loaded_small):
    session = Told(loaded_small._model, [5, 10, 11], [word(7, 0)] * 3)
    hear_either(session)
    first, second = ["detect", "run", "send"], ["detect", "run", "fix", "send"]
    assert session.done[:7] == first + second
