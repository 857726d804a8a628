import math
import wave
from array import array

import numpy as np
import pytest

from bench import sounds
from bench.sounds import FULL_SCALE, SAMPLE_RATE, repeated, resampled, spoken

TONE_HZ = 440


def tone(rate, seconds=0.5, height=10_000):
    n_samples = round(rate * seconds)
    times = np.arange(n_samples) / rate
    return np.round(height * np.sin(2 * math.pi * TONE_HZ * times)).astype(np.int16)


@pytest.fixture
def recording(tmp_path):
    """Write a recording; give its path."""

    def write(rate=SAMPLE_RATE, n_channels=1):
        path = tmp_path / "recording.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(n_channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(tone(rate).tobytes())
        return path

    return write


def test_a_recording_is_repeated_until_time_is_up(recording, tmp_path):
    sound = repeated(recording(), 1.25, tmp_path)
    assert sound.seconds == 1.25
    values = array("f", sound.samples)
    assert values[:100] == values[8000:8100] == values[16000:16100]
    assert max(values) == pytest.approx(10_000 / FULL_SCALE, rel=0.01)


def test_the_file_and_the_samples_are_the_same_sound(recording, tmp_path):
    sound = repeated(recording(), 0.75, tmp_path)
    with wave.open(str(sound.path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (SAMPLE_RATE, 1)
        written = array("h", file.readframes(file.getnframes()))
    assert [value / FULL_SCALE for value in written] == list(array("f", sound.samples))


@pytest.mark.parametrize(("rate", "n_channels"), [(22_050, 1), (SAMPLE_RATE, 2)])
def test_a_recording_in_another_format_is_refused(
    recording, tmp_path, rate, n_channels
):
    with pytest.raises(ValueError, match="expected"):
        repeated(recording(rate, n_channels), 1, tmp_path)


@pytest.mark.parametrize("rate", [22_050, 48_000, 8_000])
def test_a_tone_stays_itself_at_another_rate(rate):
    got = resampled(tone(rate), rate)
    assert len(got) == 8_000
    assert np.abs(got - tone(SAMPLE_RATE).astype(int)).max() < 300


def test_what_is_too_loud_is_cut(tmp_path):
    step = np.repeat(np.array([-FULL_SCALE, FULL_SCALE - 1], np.int16), 2000)
    got = resampled(step, 22_050)
    middle = len(got) // 2
    assert (got[5 : middle - 5] < 0).all()
    assert (got[middle + 5 : -5] > 0).all()


def test_sentences_are_spoken_one_by_one(recording, tmp_path, monkeypatch):
    speaker = tmp_path / "speaker"
    log = tmp_path / "log"
    speaker.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncat {recording(22_050)}\n')
    speaker.chmod(0o700)
    monkeypatch.setattr(sounds, "SPEAKER", str(speaker))
    first, second = spoken(["one.", "two"], tmp_path)
    assert first.seconds == second.seconds == 0.5
    assert first.path != second.path
    assert log.read_text().splitlines() == [
        f"-v en-us -s 150 --stdout {sentence}" for sentence in ("one.", "two")
    ]


def test_without_a_speaker_it_is_said_who_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(sounds, "SPEAKER", "no-such-speaker")
    with pytest.raises(SystemExit, match="^no-such-speaker does not speak: "):
        spoken(["one"], tmp_path)


def test_there_are_enough_sentences_and_none_twice():
    assert len(set(sounds.SENTENCES)) == len(sounds.SENTENCES) >= 20
