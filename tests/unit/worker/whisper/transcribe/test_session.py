import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inferd.ipc.worker import Transcribed, TranscriptEnded
from inferd.worker.backend import PreparedJob
from inferd.worker.whisper.transcribe.audio import AudioFile
from inferd.worker.whisper.transcribe.inference import (
    InferenceOptions,
    Piece,
    TextToken,
)
from inferd.worker.whisper.transcribe.scheduler import (
    JobDroppedError,
    JobThread,
    always,
)
from inferd.worker.whisper.transcribe.session import (
    MIN_SAMPLES,
    PreparedSpeech,
    TranscriptionSession,
)
from tests.fakes.fds import n_open
from tests.unit.worker.whisper.running import descriptor, job, noise


def speech(
    seconds: float = 1.0, prompt: tuple[int, ...] = (), **fields
) -> PreparedSpeech:
    samples = noise(seconds)
    sound = AudioFile(descriptor(samples), "a", len(samples))
    return PreparedSpeech(job(samples, **fields), sound, prompt)


@pytest.fixture
def session_of(loaded_small):
    def of(**fields) -> TranscriptionSession:
        turn = JobThread(1, lambda _: None)
        return TranscriptionSession(
            loaded_small._model, speech(**fields), turn, lambda: 1
        )

    return of


def test_a_second_of_sound_is_fifty_tokens_beside_the_prompts():
    prepared: PreparedJob = speech(1.5, prompt=(1, 2, 3))
    assert prepared.prompt_tokens == 78
    assert prepared.open_thought == ""


@pytest.mark.parametrize("language", [None, "auto", "en"])
def test_an_english_model_always_transcribes_english(session_of, language):
    session = session_of(language=language)
    session.detect_language(noise(1))
    assert (session.language, session.language_probability) == ("en", None)


def test_max_tokens_of_0_ends_the_job_without_inference(session_of):
    session = session_of(max_tokens=0)
    session.perform(lambda _: pytest.fail("it was heard"))
    [ended] = session.thread.outcomes()
    assert (ended.stop_reason, ended.audio_ms) == ("length", 0)
    assert (ended.usage.prompt_tokens, ended.usage.completion_tokens) == (0, 0)


def test_less_than_a_tenth_of_a_second_has_no_words(session_of):
    session = session_of(seconds=0.1)

    def hear(each: TranscriptionSession) -> None:
        each.n_samples_done = 1600
        each.run(
            noise(0.1),
            InferenceOptions(),
            lambda _: pytest.fail("there is no word in it"),
        )

    session.perform(hear)
    [ended] = session.thread.outcomes()
    assert (ended.stop_reason, ended.audio_ms, ended.language) == ("end", 100, "en")


def test_a_sound_is_all_there_unless_more_is_to_come():
    assert speech().is_whole
    assert not PreparedSpeech(
        job(), AudioFile(descriptor(noise(1)), "a", 0), ()
    ).is_whole


def test_a_job_s_sound_is_closed_with_it_once():
    gc.collect()  # what other tests left
    before = n_open()
    closed = speech()
    closed.close()
    assert n_open() == before
    forgotten = speech()
    assert n_open() == before + 1
    del forgotten
    gc.collect()
    assert n_open() == before
    closed.close()


# --- what the library is asked ----------------------------------------------------------

SAMPLES = np.zeros(MIN_SAMPLES, np.float32)
WORD = Piece(b"word", 0, 100, None, (TextToken(7, b"word"),))


class NotedTurn(JobThread):
    """Is given back, and there again; notes how much was told by then."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None)
        self.pauses: list[int] = []

    def yield_control(self, until=always, free=None) -> None:
        self.pauses.append(self._outcomes.qsize())


class Library:
    """Hears one word in whatever it is given, and German in it; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, InferenceOptions]] = []
        self.detected: list[tuple[int, int]] = []
        self.went_on: list[tuple[bool, bool]] = []
        self.is_open = False

    def __call__(self, _model: object) -> "Library":
        self.is_open = True
        return self

    def close(self) -> None:
        self.is_open = False

    def detect_language(self, samples, n_threads) -> tuple[str, float]:
        self.detected.append((len(samples), n_threads))
        return "de", 0.75

    def run(self, samples, options, callbacks) -> None:
        self.asked.append((len(samples), options))
        callbacks.on_segment([WORD])
        self.went_on.append((callbacks.on_chunk(), callbacks.should_abort()))


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setattr("inferd.worker.whisper.transcribe.session.WhisperState", made)
    return made


def polyglot(**fields) -> TranscriptionSession:
    """A job of a model of many languages, on three threads."""
    model: Any = SimpleNamespace(header=SimpleNamespace(is_multilingual=True))
    return TranscriptionSession(model, speech(**fields), NotedTurn(), lambda: 3)


def pauses_of(session: TranscriptionSession) -> list[int]:
    assert isinstance(session.thread, NotedTurn)
    return session.thread.pauses


def hear(session: TranscriptionSession, *options: InferenceOptions) -> None:
    """Have it hear the same once for each of these, and take what it heard."""

    def add(pieces: list[Piece]) -> None:
        for piece in pieces:
            session.segments.add(piece, first_ms=0, audio_ms=1000)

    for each in options:
        session.detect_language(SAMPLES)
        session.run(SAMPLES, each, add)
        session.fix_language()


def test_the_options_of_a_job_are_passed_to_the_library(library):
    session = polyglot(language="fr", translates=True, temperature=0.5)
    session.perform(
        lambda each: hear(each, InferenceOptions(prompt=(1, 2), by_word=True))
    )
    chosen: dict[str, Any] = {
        "n_threads": 3,
        "language": "fr",
        "translates": True,
        "temperature": 0.5,
    }
    options = InferenceOptions(prompt=(1, 2), by_word=True)._replace(**chosen)
    assert library.asked == [(MIN_SAMPLES, options)]
    assert library.detected == []


@pytest.mark.parametrize("language", [None, "auto"])
def test_a_language_is_found_once_and_told_in_the_end(library, language):
    session = polyglot(language=language)
    session.perform(lambda each: hear(each, InferenceOptions(), InferenceOptions()))
    assert library.detected == [(MIN_SAMPLES, 3)]
    assert [options.language for _, options in library.asked] == ["de", "de"]
    end = session.thread.outcomes()[-1]
    assert isinstance(end, TranscriptEnded)
    assert (end.language, end.language_probability) == ("de", 0.75)


def test_others_compute_once_a_language_is_found(library):
    session = polyglot()
    session.perform(lambda each: each.detect_language(SAMPLES))
    assert pauses_of(session) == [0]
    session.perform(lambda each: each.detect_language(SAMPLES[1:]))
    assert len(library.detected) == 1


def test_between_two_chunks_what_was_heard_is_told_and_others_compute(library):
    session = polyglot(language="de")
    session.perform(lambda each: hear(each, InferenceOptions()))
    assert library.went_on == [(True, False)]
    assert pauses_of(session) == [1]
    assert session.thread.made_progress()
    told, end = session.thread.outcomes()
    assert isinstance(told, Transcribed)
    assert [segment.text for segment in told.segments] == [b"word"]
    assert isinstance(end, TranscriptEnded)
    assert (end.stop_reason, end.usage.completion_tokens) == ("end", 1)


def test_no_chunk_begins_after_max_tokens(library):
    session = polyglot(language="de", max_tokens=1)
    session.perform(lambda each: hear(each, InferenceOptions()))
    assert library.went_on == [(False, True)]
    assert pauses_of(session) == []
    told, end = session.thread.outcomes()
    assert isinstance(told, Transcribed)
    assert told.n_tokens == 1
    assert isinstance(end, TranscriptEnded)
    assert end.stop_reason == "length"


def test_a_dropped_job_ends_and_frees_its_state(library):
    session = polyglot(language="de")

    def drop(each: TranscriptionSession) -> None:
        hear(each, InferenceOptions())
        assert library.is_open
        each.thread.is_dropped = True
        hear(each, InferenceOptions())

    with pytest.raises(JobDroppedError):
        session.perform(drop)
    assert [is_over for _, is_over in library.went_on] == [False, True]
    assert not library.is_open


def test_audio_too_short_for_the_library_is_not_passed_to_it(library):
    session = polyglot(language="de")
    session.perform(
        lambda each: each.run(SAMPLES[1:], InferenceOptions(), lambda _: None)
    )
    assert library.asked == []
