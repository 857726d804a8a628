import math
import re

import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.errors import InvalidRequestError
from inferd.job import Sampling
from inferd.resolve import resolve_generate
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.unit.strategies import U32

TURN = ChatMessage("user", "hi")
BUDGETS = (70, 140, 280, 560, 1120)


def resolve(**fields):
    return resolve_generate(GenerateRequest(**{"messages": [TURN], **fields}), seed=7)


def refusal(**fields):
    with pytest.raises(InvalidRequestError) as caught:
        resolve(**fields)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def test_what_is_left_open_is_the_wires_default():
    job = resolve()
    assert (job.messages, job.max_tokens) == ([TURN], 1000)
    assert job.sampling == Sampling(temperature=1.0, top_p=0.95, top_k=64, seed=7)


def test_a_zero_that_was_asked_for_is_no_default():
    job = resolve(max_tokens=0, temperature=0.0, top_k=0)
    assert (job.max_tokens, job.sampling.temperature, job.sampling.top_k) == (0, 0, 0)


@settings(max_examples=100)
@given(
    st.floats(0, 2) | st.none(),
    st.floats(0, 1, exclude_min=True) | st.none(),
    U32 | st.none(),
    U32 | st.none(),
)
def test_what_is_in_range_is_kept_as_it_came(temperature, top_p, top_k, max_tokens):
    job = resolve(
        temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens
    )
    assert job.sampling.temperature == (1.0 if temperature is None else temperature)
    assert job.sampling.top_p == (0.95 if top_p is None else top_p)
    assert job.sampling.top_k == (64 if top_k is None else top_k)
    assert job.max_tokens == (1000 if max_tokens is None else max_tokens)


@given(st.floats())
@example(math.nextafter(2, 3))
@example(-math.ulp(0))
def test_a_temperature_is_in_range_or_named_with_its_range(value):
    if 0 <= value <= 2:
        assert resolve(temperature=value).sampling.temperature == value
    else:
        text = refusal(temperature=value)
        assert named_in(text, r"temperature (\S+) not in \[0, 2\]") == pytest.approx(
            value, rel=0, abs=0, nan_ok=True
        )


@given(st.floats())
@example(0.0)
@example(math.nextafter(1, 2))
def test_a_top_p_is_in_range_or_named_with_its_range(value):
    if 0 < value <= 1:
        assert resolve(top_p=value).sampling.top_p == value
    else:
        text = refusal(top_p=value)
        assert named_in(text, r"top_p (\S+) not in \(0, 1\]") == pytest.approx(
            value, rel=0, abs=0, nan_ok=True
        )


def named_in(text, pattern):
    match = re.fullmatch(pattern, text)
    assert match is not None, text
    return float(match[1])


@given(U32)
def test_an_image_token_budget_is_one_of_five_or_named_with_them(value):
    if value in BUDGETS:
        assert resolve(image_token_budget=value) == resolve()
    else:
        assert refusal(image_token_budget=value) == (
            f"image_token_budget {value} not in [70, 140, 280, 560, 1120]"
        )


@pytest.mark.parametrize("budget", BUDGETS)
def test_each_budget_of_the_wire_is_accepted(budget):
    assert resolve(image_token_budget=budget) == resolve()


def test_a_conversation_has_a_message():
    assert refusal(messages=[]) == "messages must not be empty"


def test_an_empty_text_is_a_message():
    assert resolve(messages=[ChatMessage("user", "")]).messages[0].content == ""


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_a_grammar_is_counted_in_bytes(letter):
    fits = letter * (65536 // len(letter.encode()))
    assert resolve(grammar=fits).sampling.grammar == fits
    n_bytes = len((fits + letter).encode())
    assert refusal(grammar=fits + letter) == (
        f"grammar has {n_bytes} bytes, at most 65536 are allowed"
    )


def test_a_grammar_has_4096_alternatives_at_most():
    assert resolve(grammar="|" * 4096).sampling.grammar == "|" * 4096
    assert refusal(grammar="|" * 4097) == (
        "grammar has 4097 alternatives (|), at most 4096 are allowed"
    )
