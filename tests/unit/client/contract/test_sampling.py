import math

import pytest

from inferd.client.contract import Request, SamplingParams
from tests.cases import each_case


@each_case(
    ("field", "inside", "outside"),
    [
        ("temperature", (0.0, 0.7, 2.0), (-0.1, -1, 2.1, math.nan, math.inf)),
        ("top_k", (1, 40, 100), (0, 101, -1)),
        ("top_p", (0.001, 0.9, 1.0), (0.0, -0.1, 1.1, math.nan)),
        ("repetition_penalty", (0.0, 1.2, 2.0), (-0.1, 2.1)),
        ("seed", (0, 42, 2**32 - 2), (-1, 2**32 - 1)),
    ],
)
def test_values_are_valid_within_their_ranges(field, inside, outside):
    for value in (*inside, None):
        if (field, value) != ("seed", None):
            assert SamplingParams(**{field: value}).is_valid(), value
    for value in outside:
        assert SamplingParams(**{field: value}).is_valid() is False, value


def test_invalid_values_are_refused_and_change_nothing():
    request = Request("r")
    request.set_sampling_params(SamplingParams(temperature=0.5))
    with pytest.raises(ValueError, match="temperature=-1"):
        request.set_sampling_params(SamplingParams(temperature=-1))
    assert request.get_sampling_params() == SamplingParams(temperature=0.5)


def test_a_copy_is_kept():
    params = SamplingParams(top_k=40)
    request = Request("r")
    request.set_sampling_params(params)
    params.top_k = 101
    request.get_sampling_params().top_k = 102
    assert request.get_sampling_params().top_k == 40
