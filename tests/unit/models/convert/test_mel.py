import numpy as np
import pytest

from inferd.models.convert.mel import N_FFT, SAMPLE_RATE, mel_filters
from tests.cases import each_case

FREQUENCIES = np.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_each_filter_is_one_triangle_and_they_rise(n_mels):
    filters = mel_filters(n_mels)
    assert filters.shape == (n_mels, N_FFT // 2 + 1)
    assert filters.dtype == np.float32
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    for each in filters:
        [inside] = each.nonzero()
        assert np.array_equal(inside, np.arange(inside[0], inside[-1] + 1))
        assert (np.diff(np.sign(np.diff(each[inside]))) <= 0).all()


PUBLISHED = [
    (0, 1, 0.02486259490251541),
    (20, 20, 0.013890394009649754),
    (40, 43, 0.014735566452145576),
    (60, 93, 0.006591092795133591),
    (79, 192, 0.0031647118739783764),
]
"""Of the filters that come with the model: which one, where its peak is, and how high."""


@each_case(("number", "peak", "height"), PUBLISHED)
def test_filters_are_those_the_model_was_trained_with(number, peak, height):
    each = mel_filters(80)[number]
    assert each.argmax() == peak
    assert each.max() == pytest.approx(height, rel=1e-6)


def test_wide_filters_have_the_same_area():
    filters = mel_filters(80)
    areas = filters[40:].sum(axis=1) * FREQUENCIES[1]
    assert areas == pytest.approx(np.ones(40), rel=0.2)
