import numpy as np
import pytest
from hypothesis import given, strategies as st

from inferd.worker.backend import RefusedError
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE, AudioFile, positions
from tests.cases import each_case
from tests.unit.worker.whisper.running import descriptor, noise

N = 3000


def sound(samples, n_samples: int | None = None) -> AudioFile:
    return AudioFile(descriptor(samples), "a", n_samples or len(samples))


@given(st.integers(0, N - 1), st.integers(0, N))
def test_any_part_is_read_as_it_is(first, n):
    samples = noise(N / SAMPLE_RATE)
    n = min(n, N - first)
    assert sound(samples).read(first, n).tolist() == samples[first : first + n].tolist()


@each_case(
    ("value", "fault"),
    [
        (np.nan, "not finite"),
        (np.inf, "not finite"),
        (-np.inf, "not finite"),
        (32_769, "over 32768"),
        (-1e30, "over 32768"),
    ],
)
@each_case("place", [0, 17, N - 1])
def test_a_sample_that_nobody_can_hear_is_named(value, fault, place):
    samples = noise(N / SAMPLE_RATE)
    samples[place] = value
    with pytest.raises(
        RefusedError, match=f'^attachment "a": sample {place} is {fault}'
    ):
        sound(samples).check()
    if place:
        found = sound(samples)
        with pytest.raises(RefusedError, match=f"sample {place} is"):
            found.read(place - 1, 2)


def test_a_sample_deep_in_a_long_sound_is_named_by_its_own_number():
    samples = np.zeros(2**20 + 5, np.float32)
    samples[2**20 + 3] = np.nan
    with pytest.raises(RefusedError, match=f"sample {2**20 + 3} is not finite"):
        sound(samples).check()
    with pytest.raises(RefusedError, match=f"sample {2**20 + 3} is not finite"):
        sound(samples).read(1, 2**20 + 4)


def test_samples_as_loud_as_programs_count_are_heard():
    sound(np.array([32_768, -32_768, 0], np.float32)).check()


def test_a_sound_that_is_shorter_than_it_was_said_to_be_is_refused():
    with pytest.raises(RefusedError, match='attachment "a" ends before sample'):
        sound(noise(N / SAMPLE_RATE), N + 1).check()


@each_case(
    ("n_samples", "n_positions"), [(0, 0), (1, 1), (320, 1), (321, 2), (16_000, 50)]
)
def test_fifty_places_stand_for_a_second(n_samples, n_positions):
    assert positions(n_samples) == n_positions
