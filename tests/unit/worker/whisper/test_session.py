import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from inferd.ipc import Transcribed, TranscriptEnded
from inferd.worker.backend import PreparedJob
from inferd.worker.whisper.listening import Options, Piece, Token
from inferd.worker.whisper.session import FEWEST, Session, Speech
from inferd.worker.whisper.sound import Sound
from inferd.worker.whisper.turns import DroppedError, Turn, always
from tests.fakes.fds import n_open
from tests.unit.worker.whisper.running import descriptor, job, noise


def speech(seconds: float = 1.0, prompt: tuple[int, ...] = (), **fields) -> Speech:
    samples = noise(seconds)
    sound = Sound(descriptor(samples), "a", len(samples))
    return Speech(job(samples, **fields), sound, prompt)


@pytest.fixture
def session_of(loaded_small):
    def of(**fields) -> Session:
        turn = Turn(1, lambda _: None)
        return Session(loaded_small._model, speech(**fields), turn, lambda: 1)

    return of


def test_a_second_of_sound_is_fifty_tokens_beside_the_prompts():
    prepared: PreparedJob = speech(1.5, prompt=(1, 2, 3))
    assert prepared.prompt_tokens == 78
    assert prepared.open_thought == ""


@pytest.mark.parametrize("language", [None, "auto", "en"])
def test_a_model_of_english_hears_english(session_of, language):
    session = session_of(language=language)
    session.find_language(noise(1))
    assert (session.language, session.language_probability) == ("en", None)


def test_whoever_wants_no_token_has_none_and_nothing_is_heard(session_of):
    session = session_of(max_tokens=0)
    session.perform(lambda _: pytest.fail("it was heard"))
    [ended] = session.turn.outcomes()
    assert (ended.stop_reason, ended.audio_ms) == ("length", 0)
    assert (ended.usage.prompt_tokens, ended.usage.completion_tokens) == (0, 0)


def test_less_than_a_tenth_of_a_second_has_no_words(session_of):
    session = session_of(seconds=0.1)

    def hear(each: Session) -> None:
        each.n_heard = 1600
        each.listen(
            noise(0.1), Options(), lambda _: pytest.fail("there is no word in it")
        )

    session.perform(hear)
    [ended] = session.turn.outcomes()
    assert (ended.stop_reason, ended.audio_ms, ended.language) == ("end", 100, "en")


def test_a_sound_is_all_there_unless_more_is_to_come():
    assert speech().is_whole
    assert not Speech(job(), Sound(descriptor(noise(1)), "a", 0), ()).is_whole


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

SAMPLES = np.zeros(FEWEST, np.float32)
WORD = Piece(b"word", 0, 100, None, (Token(7, b"word"),))


class NotedTurn(Turn):
    """Is given back, and there again; notes how much was told by then."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None)
        self.pauses: list[int] = []

    def pause(self, until=always, rest=None) -> None:
        self.pauses.append(self._told.qsize())


class Library:
    """Hears one word in whatever it is given, and German in it; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Options]] = []
        self.detected: list[tuple[int, int]] = []
        self.went_on: list[tuple[bool, bool]] = []
        self.is_open = False

    def __call__(self, _model: object) -> "Library":
        self.is_open = True
        return self

    def close(self) -> None:
        self.is_open = False

    def detect(self, samples, n_threads) -> tuple[str, float]:
        self.detected.append((len(samples), n_threads))
        return "de", 0.75

    def listen(self, samples, options, hooks) -> None:
        self.asked.append((len(samples), options))
        hooks.hear([WORD])
        self.went_on.append((hooks.go_on(), hooks.is_over()))


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setattr("inferd.worker.whisper.session.Listener", made)
    return made


def polyglot(**fields) -> Session:
    """A job of a model of many languages, on three threads."""
    model: Any = SimpleNamespace(header=SimpleNamespace(is_multilingual=True))
    return Session(model, speech(**fields), NotedTurn(), lambda: 3)


def pauses_of(session: Session) -> list[int]:
    assert isinstance(session.turn, NotedTurn)
    return session.turn.pauses


def hear(session: Session, *options: Options) -> None:
    """Have it hear the same once for each of these, and take what it heard."""

    def add(pieces: list[Piece]) -> None:
        for piece in pieces:
            session.transcript.add(piece, first_ms=0, audio_ms=1000)

    for each in options:
        session.find_language(SAMPLES)
        session.listen(SAMPLES, each, add)
        session.keep_language()


def test_what_the_job_says_is_asked_of_the_library(library):
    session = polyglot(language="fr", translates=True, temperature=0.5)
    session.perform(lambda each: hear(each, Options(prompt=(1, 2), by_word=True)))
    chosen: dict[str, Any] = {
        "n_threads": 3,
        "language": "fr",
        "translates": True,
        "temperature": 0.5,
    }
    options = Options(prompt=(1, 2), by_word=True)._replace(**chosen)
    assert library.asked == [(FEWEST, options)]
    assert library.detected == []


@pytest.mark.parametrize("language", [None, "auto"])
def test_a_language_is_found_once_and_told_in_the_end(library, language):
    session = polyglot(language=language)
    session.perform(lambda each: hear(each, Options(), Options()))
    assert library.detected == [(FEWEST, 3)]
    assert [options.language for _, options in library.asked] == ["de", "de"]
    end = session.turn.outcomes()[-1]
    assert isinstance(end, TranscriptEnded)
    assert (end.language, end.language_probability) == ("de", 0.75)


def test_others_compute_once_a_language_is_found(library):
    session = polyglot()
    session.perform(lambda each: each.find_language(SAMPLES))
    assert pauses_of(session) == [0]
    session.perform(lambda each: each.find_language(SAMPLES[1:]))
    assert len(library.detected) == 1


def test_between_two_chunks_what_was_heard_is_told_and_others_compute(library):
    session = polyglot(language="de")
    session.perform(lambda each: hear(each, Options()))
    assert library.went_on == [(True, False)]
    assert pauses_of(session) == [1]
    assert session.turn.has_beaten()
    told, end = session.turn.outcomes()
    assert isinstance(told, Transcribed)
    assert [segment.text for segment in told.segments] == [b"word"]
    assert isinstance(end, TranscriptEnded)
    assert (end.stop_reason, end.usage.completion_tokens) == ("end", 1)


def test_no_chunk_is_begun_for_tokens_that_nobody_wants(library):
    session = polyglot(language="de", max_tokens=1)
    session.perform(lambda each: hear(each, Options()))
    assert library.went_on == [(False, True)]
    assert pauses_of(session) == []
    told, end = session.turn.outcomes()
    assert isinstance(told, Transcribed)
    assert told.n_tokens == 1
    assert isinstance(end, TranscriptEnded)
    assert end.stop_reason == "length"


def test_a_job_that_nobody_wants_any_more_ends_and_frees_its_room(library):
    session = polyglot(language="de")

    def drop(each: Session) -> None:
        hear(each, Options())
        assert library.is_open
        each.turn.is_dropped = True
        hear(each, Options())

    with pytest.raises(DroppedError):
        session.perform(drop)
    assert [is_over for _, is_over in library.went_on] == [False, True]
    assert not library.is_open


def test_what_is_too_short_for_the_library_is_not_handed_to_it(library):
    session = polyglot(language="de")
    session.perform(lambda each: each.listen(SAMPLES[1:], Options(), lambda _: None))
    assert library.asked == []
