from typing import Any

import numpy as np
import pytest

from inferd.worker.whisper.listening import Options, Piece, Token
from inferd.worker.whisper.live import hear as hear_either
from inferd.worker.whisper.session import Session, Speech
from inferd.worker.whisper.sound import MS, RATE, Sound
from inferd.worker.whisper.turns import Turn, always
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
    heard = hear_live(backend, samples, RATE, wants_partials=True, **SURE)
    assert heard.partials
    assert heard.n_tokens == heard.end.usage.completion_tokens
    assert heard.end.audio_ms == 4500
    assert heard.n_bytes_read <= samples.nbytes
    times = [time for each in heard.segments for time in (each.start_ms, each.end_ms)]
    assert times == sorted(times)
    assert all(time <= 4500 for time in times)


def test_who_wants_no_partials_has_none(backend):
    assert hear_live(backend, noise(3), RATE, **SURE).partials == []


def test_a_job_that_waits_for_sound_keeps_nobody_busy(backend):
    samples = noise(3)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    assert run(backend) == {}
    backend.append(1, RATE * 2, is_last=False)
    assert run(backend) == {}  # half a second is not worth it
    backend.append(1, RATE * 4, is_last=False)
    assert backend.is_busy
    assert 1 in run(backend)
    assert not backend.is_busy
    backend.drop(1)
    backend.append(1, RATE * 8, is_last=True)
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
    backend.append(1, 0, is_last=True)
    heard = run(backend)[1]
    assert (heard.text, heard.end.audio_ms, heard.end.stop_reason) == (b"", 0, "end")


def test_half_a_minute_is_left_behind_when_it_is_full(backend):
    samples = noise(41)
    backend.start(1, backend.prepare(job(**SURE), [descriptor(samples)]))
    backend.append(1, samples.nbytes - 4, is_last=False)
    first = run(backend)[1]
    assert 0 < first.n_bytes_read <= 30 * RATE * 4
    backend.append(1, samples.nbytes, is_last=True)
    assert run(backend)[1].end.audio_ms == 41_000


def test_a_sample_that_nobody_can_hear_ends_it(backend):
    samples = noise(3)
    samples[40_000] = np.nan
    heard: Heard = hear_live(backend, samples, RATE, **SURE)
    assert heard.failure.reason == 'attachment "a": sample 40000 is not finite'
    assert heard.failure.by_request
    assert not backend.is_busy


def test_no_more_tokens_are_heard_than_are_wanted(backend):
    heard = hear_live(backend, noise(8), 4 * RATE, max_tokens=2, **SURE)
    assert heard.n_tokens == heard.end.usage.completion_tokens <= 2


def test_words_are_told_one_by_one_or_together(backend):
    samples = noise(6)
    by_word = hear_live(backend, samples, 3 * RATE, timestamps="word", **SURE)
    together = hear_live(backend, samples, 3 * RATE, **SURE)
    assert by_word.text == together.text
    assert len(by_word.segments) >= len(together.segments)


@pytest.mark.parametrize("first_s", [0, 2])
def test_what_has_come_far_ahead_is_heard_once_with_the_words_of_the_whole(
    reciter, first_s, monkeypatch
):
    samples, lengths = noise(85), []
    whole = hear(reciter, samples)
    listen = Session.listen

    def counting(session, samples, *others):
        lengths.append(len(samples) // RATE)
        listen(session, samples, *others)

    monkeypatch.setattr(Session, "listen", counting)
    reciter.start(1, reciter.prepare(job(), [descriptor(samples)]))
    reciter.append(1, first_s * RATE * 4, is_last=False)
    partly = run(reciter).get(1, Heard())
    reciter.append(1, samples.nbytes, is_last=False)
    ahead = run(reciter)[1]
    reciter.append(1, samples.nbytes, is_last=True)
    rest = run(reciter)[1]
    assert partly.text + ahead.text + rest.text == whole.text
    assert lengths == [first_s, 85, 27, 27][not first_s :]
    assert rest.end.audio_ms == 85_000


# --- what the library is asked ----------------------------------------------------------


def word(number: int, start_ms: int) -> Piece:
    text = b" word%d." % number
    return Piece(text, start_ms, start_ms + 1000, None, (Token(number, text),))


class Growing(Turn):
    """Is there again when so much more of the sound has come."""

    def __init__(self, lengths_s: list[int]) -> None:
        super().__init__(1, lambda _: None)
        self.lengths_s = lengths_s
        self.speech: Speech

    def pause(self, until=always, rest=None) -> None:
        if self.lengths_s:
            self.speech.sound.n_samples = self.lengths_s.pop(0) * RATE
            self.speech.is_whole = not self.lengths_s
        assert until()


class Told(NotedSession):
    """Hears what it is told to, call by call."""

    def __init__(self, model, lengths_s: list[int], heard: list[Piece]) -> None:
        samples = np.zeros(lengths_s[-1] * RATE, np.float32)
        is_whole = len(lengths_s) == 1
        sound = Sound(descriptor(samples), "a", len(samples) if is_whole else 0)
        speech = Speech(job(samples if is_whole else None), sound, (1, 2))
        turn = Growing([] if is_whole else lengths_s)
        turn.speech = speech
        super().__init__(model, speech, turn)
        self.heard = heard

    def listen(self, samples, options, hear) -> None:
        super().listen(samples, options, hear)
        hear([self.heard.pop(0)])


def test_a_sound_that_is_there_is_heard_as_a_recording(loaded_small):
    session = Told(loaded_small._model, [40], [word(7, 0)])
    hear_either(session)
    assert session.asked == [(40, Options(prompt=(1, 2)))]


def test_what_comes_is_heard_from_where_it_is_settled_behind_what_was_said(
    loaded_small,
):
    heard = [word(7, 0), word(7, 0), word(8, 500), word(8, 500), word(9, 0)]
    session = Told(loaded_small._model, [5, 10, 15, 20, 22], heard)
    hear_either(session)
    assert session.asked == [
        (5, Options(prompt=(1, 2), by_word=True)),
        (10, Options(prompt=(1, 2), by_word=True)),
        (14, Options(prompt=(1, 2, 7), by_word=True)),
        (19, Options(prompt=(1, 2, 7), by_word=True)),
        (19.5, Options(prompt=(1, 2, 7, 8))),
    ]
    segments = session.transcript.take().segments
    assert [each.start_ms for each in segments] == [0, 1500, 2500]
    assert session.n_heard == 22_000 * MS


def test_a_language_is_kept_once_something_is_settled(loaded_small):
    session = Told(loaded_small._model, [5, 10, 11], [word(7, 0)] * 3)
    hear_either(session)
    first, second = ["find", "listen", "tell"], ["find", "listen", "keep", "tell"]
    assert session.done[:7] == first + second
