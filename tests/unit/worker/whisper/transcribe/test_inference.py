from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.model.weights import WhisperModel
from inferd.worker.whisper.structs import FULL_DEFAULTS
from inferd.worker.whisper.transcribe.inference import (
    InferenceCallbacks,
    InferenceError,
    InferenceOptions,
    Piece,
    WhisperState,
    _Call,
)
from tests.model.tiny_whisper import write_tiny_whisper
from tests.unit.worker.whisper.running import noise

pytestmark = pytest.mark.slow

QUICK = InferenceOptions(audio_ctx=64, temperature=1.5)
"""Nonsense is tried again at every lower temperature."""


@pytest.fixture(scope="module")
def model(small_model):
    return WhisperModel(WhisperFile(small_model))


@pytest.fixture
def listener(model) -> Iterator[WhisperState]:
    made = WhisperState(model)
    yield made
    made.close()


def params(listener: WhisperState, options: InferenceOptions):
    return _Call(listener, options, InferenceCallbacks(lambda _: None)).params


def changed(made) -> dict[str, object]:
    """Tell what is not as by default."""
    return {
        name: getattr(made, name)
        for name, default in FULL_DEFAULTS.items()
        if getattr(made, name) != default
        and not (
            isinstance(default, float) and abs(getattr(made, name) - default) < 1e-6
        )
    }


def test_every_parameter_is_the_librarys_own_but_those_that_were_chosen(listener):
    plain = {"print_progress": False, "print_timestamps": False}
    assert changed(params(listener, InferenceOptions(n_threads=3))) == plain
    assert params(listener, InferenceOptions(n_threads=3)).n_threads == 3
    chosen = InferenceOptions(
        language="de",
        translates=True,
        by_word=True,
        temperature=0.5,
        prompt=(1, 2),
        keeps_context=True,
        limit_ms=1000,
    )
    made = params(listener, chosen)
    assert made.prompt_tokens[:2] == [1, 2]
    assert changed(made) == plain | {
        "language": b"de",
        "translate": True,
        "token_timestamps": True,
        "max_len": 1,
        "split_on_word": True,
        "temperature": 0.5,
        "prompt_n_tokens": 2,
        "no_context": False,
        "duration_ms": 1000,
    }


@pytest.mark.parametrize(
    ("temperature", "increment"), [(None, 0.2), (1.0, 0.2), (1.1, 0.0), (2.0, 0.0)]
)
def test_a_temperature_that_is_too_high_to_fall_back_from_is_the_only_one(
    listener, temperature, increment
):
    made = params(listener, InferenceOptions(temperature=temperature))
    assert made.temperature_inc == pytest.approx(increment)


def test_samples_are_heard_as_segments_with_their_tokens(listener):
    heard: list[Piece] = []
    listener.run(noise(3), QUICK, InferenceCallbacks(heard.extend))
    assert heard
    for piece in heard:
        assert piece.text == b"".join(token.text for token in piece.tokens)
        assert piece.ends_segment
        assert piece.no_speech is not None
        assert 0 <= piece.no_speech <= 1


def test_times_are_milliseconds_and_tokens_those_of_text(tmp_path):
    path = write_tiny_whisper(tmp_path / "reciter.bin", end_ms=28_000)
    reciter = WhisperState(WhisperModel(WhisperFile(path)))
    heard: list[Piece] = []
    reciter.run(noise(60), InferenceOptions(), InferenceCallbacks(heard.extend))
    reciter.close()
    times = [(piece.start_ms, piece.end_ms) for piece in heard]
    assert times == [(0, 2000), (2020, 28_000), (30_000, 32_000), (32_020, 58_000)]
    assert [token.text for token in heard[0].tokens] == [b" one", b" two", b" three"]


def test_a_call_ends_when_it_is_told_to_at_the_next_chunk_or_token(listener):
    n_chunks = n_beats = 0

    def stop() -> bool:
        nonlocal n_chunks
        n_chunks += 1
        return False

    def is_over() -> bool:
        nonlocal n_beats
        n_beats += 1
        return n_beats >= 3

    listener.run(noise(62), QUICK, InferenceCallbacks(lambda _: None, on_chunk=stop))
    assert n_chunks == 1
    listener.run(
        noise(3), QUICK, InferenceCallbacks(lambda _: None, should_abort=is_over)
    )
    assert n_beats == 3


@pytest.mark.parametrize("hook", ["on_segment", "on_chunk"])
def test_what_goes_wrong_in_a_hook_goes_wrong_here(listener, hook):
    def fail(*_: object) -> bool:
        raise KeyError(hook)

    failing: dict[str, Any] = {hook: fail}
    callbacks = InferenceCallbacks(lambda _: None)._replace(**failing)
    with pytest.raises(KeyError, match=hook):
        listener.run(noise(62), QUICK, callbacks)


def test_a_failure_of_the_library_is_told(listener):
    with pytest.raises(InferenceError, match=r"whisper.cpp failed \(error -5\)"):
        listener.run(
            noise(1),
            InferenceOptions(audio_ctx=9999),
            InferenceCallbacks(lambda _: None),
        )


def test_a_language_is_one_that_the_model_knows(listener, model):
    language, probability = listener.detect_language(noise(1), 1)
    assert language in model.languages
    assert 0 <= probability <= 1


def test_a_sound_too_short_to_tell_its_language_is_a_failure(listener):
    with pytest.raises(InferenceError, match="could not detect the language"):
        listener.detect_language(np.zeros(30, np.float32), 1)


def test_silence_and_noise_as_loud_as_can_be_are_heard(listener):
    for samples in (np.zeros(16_000, np.float32), np.sign(noise(1)), noise(1) * 3e5):
        listener.run(samples, QUICK, InferenceCallbacks(lambda _: None))
