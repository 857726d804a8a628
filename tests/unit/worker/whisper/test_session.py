import pytest

from inferd.worker.backend import PreparedJob
from inferd.worker.whisper.listening import Options
from inferd.worker.whisper.session import Session, Speech
from inferd.worker.whisper.sound import Sound
from inferd.worker.whisper.turns import Turn
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
