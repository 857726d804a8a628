import itertools
import os
import string
import threading
import wave
from collections.abc import Iterator

import numpy as np
import pytest

from inferd.ipc.worker import Failed, Segment, Transcribed, TranscriptEnded
from inferd.worker.backend import LoadError
from inferd.worker.whisper.backend import WhisperBackend
from inferd.worker.whisper.model.file import WhisperFile
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE
from inferd.worker.whisper.transcribe.inference import InferenceOptions
from tests.model.changes import hear_little
from tests.model.embedded import embedded_path
from tests.unit.worker.whisper.running import (
    Heard,
    Samples,
    hear,
    hear_live,
    load,
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
def english() -> Iterator[WhisperBackend]:
    before = InferenceOptions.__new__.__defaults__
    hear_little()
    yield load(embedded_path("speech"))[0]
    InferenceOptions.__new__.__defaults__ = before


@pytest.fixture(scope="module")
def clip() -> Samples:
    with wave.open(str(clip_path())) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (samples / 32_768).astype(np.float32)


@pytest.fixture(scope="module")
def plain(english, clip) -> Heard:
    """What the English model hears in the clip."""
    return hear(english, clip)


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


@pytest.mark.long
def test_speech_in_pieces_has_the_words_of_the_whole(english, plain, clip):
    heard = hear_live(english, clip, 3 * SAMPLE_RATE, wants_partials=True)
    assert words(heard) == words(plain)
    assert len(heard.segments) > 2
    assert len(heard.partials) > 2
    assert times(heard) == sorted(times(heard))
    assert times(heard)[-1] <= CLIP_MS
    assert 0 < heard.n_bytes_read <= clip.nbytes


def test_the_first_tokens_are_those_of_the_whole(english, clip):
    heard = hear(english, clip, max_tokens=5, wants_logprobs=True)
    assert heard.text == b" And so my fellow Americans"
    assert (heard.n_tokens, heard.end.stop_reason) == (5, "length")
    told = [token for each in heard.segments for token in each.logprobs]
    assert b"".join(bytes(token.bytes) for token in told) == heard.text
    assert all(-2 < token.logprob < 0 for token in told)
    assert len({token.logprob for token in told}) == len(told)


def test_a_job_that_is_interrupted_ends_within_its_chunk(english, clip):
    start(english, 1, np.tile(clip, 20))
    threading.Timer(0.2, lambda: english.interrupt(1)).start()
    outcomes = english.step()
    assert not any(isinstance(each, TranscriptEnded) for each in outcomes)
    english.drop(1)
    while english.is_busy:
        assert english.step() == []


@pytest.mark.long
def test_segments_of_a_minute_come_before_its_end(english, clip):
    half_a_minute = np.pad(clip, (0, 30 * SAMPLE_RATE - len(clip)))
    start(english, 1, np.tile(half_a_minute, 2))
    segments: list[Segment] = []
    told_at: list[int] = []
    for number in itertools.takewhile(lambda _: english.is_busy, itertools.count()):
        for outcome in english.step():
            assert isinstance(outcome, Transcribed | TranscriptEnded | Failed)
            if isinstance(outcome, Transcribed) and outcome.segments:
                told_at.append(number)
                segments += outcome.segments
    assert told_at[0] < told_at[-1]
    assert segments[0].end_ms <= 30_000 <= segments[-1].start_ms
    assert b"".join(each.text for each in segments).count(b"fellow Americans") == 2


def test_a_model_that_was_cut_short_or_overwritten_is_refused(tmp_path):
    whole = embedded_path("speech")
    size = whole.stat().st_size
    path = tmp_path / "m.bin"
    with whole.open("rb") as file:
        content = file.read(4 * 1024 * 1024)
    for damaged in (content, content[:100], os.urandom(5000), content[:4] + bytes(999)):
        path.write_bytes(damaged)
        with pytest.raises(LoadError, match=f"^model file {path}: "):
            WhisperFile(path)
    assert size > len(content)
