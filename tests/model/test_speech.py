import os
import string
import threading
import time
import wave

import numpy as np
import pytest

from inferd.ipc.worker import Failed, Transcribed, TranscriptEnded
from inferd.models.embedded import EMBEDDED_MODELS
from inferd.paths import cache_directory
from inferd.worker.backend import LoadError
from inferd.worker.whisper.backend import WhisperBackend
from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE
from tests.unit.worker.whisper.running import (
    Heard,
    Samples,
    hear,
    hear_live,
    load,
    run,
    start,
)
from tools.spoken_clip import clip_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXT = (
    b" And so my fellow Americans ask not what your country can do for you"
    b" ask what you can do for your country."
)
CLIP_MS = 11_000


@pytest.fixture(scope="module")
def english() -> WhisperBackend:
    return load(EMBEDDED_MODELS["speech"].path_in(cache_directory()))[0]


@pytest.fixture(scope="module")
def multilingual() -> WhisperBackend:
    path = EMBEDDED_MODELS["speech-multilingual"].path_in(cache_directory())
    return load(path)[0]


@pytest.fixture(scope="module")
def clip() -> Samples:
    with wave.open(str(clip_path())) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (samples / 32_768).astype(np.float32)


@pytest.fixture(scope="module")
def plain(english, clip) -> Heard:
    """What the English model hears in the clip."""
    return hear(english, clip)


@pytest.fixture(scope="module")
def plain_multilingual(multilingual, clip) -> Heard:
    """What the model of many languages hears in it as English."""
    return hear(multilingual, clip, language="en")


def words(heard: Heard) -> list[bytes]:
    """Give the words, without marks and capitals."""
    return heard.text.translate(None, string.punctuation.encode()).lower().split()


def times(heard: Heard) -> list[int]:
    return [time for each in heard.segments for time in (each.start_ms, each.end_ms)]


def test_recorded_speech_is_written_down_word_by_word(plain):
    assert plain.text == TEXT
    assert times(plain) == [0, 8000, 8000, CLIP_MS]
    assert plain.end.usage.completion_tokens == plain.n_tokens == 23
    assert plain.end.usage.prompt_tokens == 550
    assert all(each.no_speech is not None for each in plain.segments)
    assert all(0 <= (each.no_speech or 0) < 0.5 for each in plain.segments)


def test_a_larger_model_finds_the_comma(plain_multilingual):
    assert plain_multilingual.text == TEXT.replace(b"for you ask", b"for you, ask")
    assert plain_multilingual.end.language == "en"


def test_words_have_times_inside_the_clip_that_never_go_back(english, clip):
    heard = hear(english, clip, timestamps="word")
    assert [each.text for each in heard.segments] == [
        b" " + each for each in TEXT.split()
    ]
    assert times(heard) == sorted(times(heard))
    assert all(0 <= each <= CLIP_MS for each in times(heard))
    assert all(each.start_ms < each.end_ms for each in heard.segments)


def test_speech_in_pieces_has_the_words_of_the_whole(english, plain, clip):
    heard = hear_live(english, clip, 3 * SAMPLE_RATE, wants_partials=True)
    assert words(heard) == words(plain)
    assert len(heard.segments) > 2
    assert len(heard.partials) > 2
    assert times(heard) == sorted(times(heard))
    assert times(heard)[-1] <= CLIP_MS
    assert 0 < heard.n_bytes_read <= clip.nbytes


def test_two_that_take_turns_hear_what_each_would_alone(english, plain, clip):
    sounds = {1: np.tile(clip, 3), 2: clip}  # two chunks, and one
    alone = {1: hear(english, sounds[1]).segments, 2: plain.segments}
    for ticket, samples in sounds.items():
        start(english, ticket, samples)
    together = run(english)
    assert {ticket: each.segments for ticket, each in together.items()} == alone


def test_nothing_of_one_job_is_left_for_the_next(
    multilingual, plain_multilingual, clip
):
    hear(
        multilingual,
        clip,
        language="de",
        translates=True,
        timestamps="word",
        prompt="Liebe Landsleute",
        temperature=0.4,
        max_tokens=5,
    )
    again = hear(multilingual, clip, language="en")
    assert again.segments == plain_multilingual.segments


def test_the_first_tokens_are_those_of_the_whole(english, clip):
    heard = hear(english, clip, max_tokens=5)
    assert heard.text == b" And so my fellow Americans"
    assert (heard.n_tokens, heard.end.stop_reason) == (5, "length")


@pytest.mark.alone
def test_a_job_that_is_interrupted_ends_within_its_chunk(english, clip):
    start(english, 1, np.tile(clip, 20))
    threading.Timer(0.2, lambda: english.interrupt(1)).start()
    began = time.monotonic()
    english.step()
    english.drop(1)
    while english.is_busy:
        assert english.step() == []
    assert time.monotonic() - began < 20  # all of it takes ten times as long


@pytest.mark.parametrize("kind", ["silent", "clipped", "short"])
def test_sounds_without_words_are_heard_to_their_end(english, clip, kind):
    samples = {
        "silent": np.zeros(3 * SAMPLE_RATE, np.float32),
        "clipped": np.clip(clip * 1000, -1, 1).astype(np.float32)[: 3 * SAMPLE_RATE],
        "short": clip[:1500],
    }[kind]
    heard = hear(english, samples)
    assert heard.end.stop_reason == "end"
    assert heard.end.audio_ms == len(samples) * 1000 // SAMPLE_RATE


def test_segments_come_before_the_end_of_a_minute(english, clip):
    samples = np.tile(clip, 6)
    start(english, 1, samples)
    told_at: list[int] = []
    n_steps = 0
    while english.is_busy:
        n_steps += 1
        for outcome in english.step():
            assert isinstance(outcome, Transcribed | TranscriptEnded | Failed)
            if isinstance(outcome, Transcribed) and outcome.segments:
                told_at.append(n_steps)
    assert len(told_at) >= 2
    assert told_at[0] < n_steps // 2


def test_a_model_that_was_cut_short_or_overwritten_is_refused(tmp_path):
    whole = EMBEDDED_MODELS["speech"].path_in(cache_directory())
    size = whole.stat().st_size
    path = tmp_path / "m.bin"
    with whole.open("rb") as file:
        content = file.read(4 * 1024 * 1024)
    for damaged in (content, content[:100], os.urandom(5000), content[:4] + bytes(999)):
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match=f"^model file {path}: "):
            WhisperFile(path)
    assert size > len(content)
