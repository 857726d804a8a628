import math
import re

import pytest
from hypothesis import example, given, settings, strategies as st

from inferd.errors import InvalidRequestError
from inferd.limits.protocol import MAX_MODEL_CHARS
from inferd.resolve.embed import resolve_embed
from inferd.resolve.options import (
    RANGES,
    biases_of,
    check_message_count,
    count_in_range,
    in_range,
    model_of,
    out_of_range,
    seed_of,
    stop_tokens_of,
    stops_of,
)
from inferd.resolve.rerank import resolve_rerank
from inferd.resolve.v1 import resolve_v1
from inferd.resolve.v2 import resolve_v2
from inferd.wire.blocks import BlocksRequest, Message, TextBlock
from inferd.wire.requests import (
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from tests.cases import each_case

ALLOWED = {
    "temperature": "[0, 2]",
    "top_p": "(0, 1]",
    "min_p": "[0, 1]",
    "repeat_penalty": "(0, 2]",
    "presence_penalty": "[-2, 2]",
    "frequency_penalty": "[-2, 2]",
    "keep_alive_s": "[0, 2592000]",
}
BOUND = re.compile(r"([\[(])(\S+), (\S+)]")
REFUSAL = re.compile(r"(\w+) (\S+) not in (.+)")


def said(check, *arguments, **keywords):
    with pytest.raises(InvalidRequestError) as caught:
        check(*arguments, **keywords)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def parts(pattern, text):
    match = pattern.fullmatch(text)
    assert match is not None, text
    return match.groups()


def test_these_numbers_have_a_range():
    assert set(RANGES) == set(ALLOWED)


@each_case("field", ALLOWED)
@settings(max_examples=50)
@given(value=st.floats())
@example(value=0.0)
@example(value=math.nextafter(2, 3))
@example(value=math.nextafter(1, 2))
@example(value=math.nextafter(-2, -3))
@example(value=-math.ulp(0))
def test_a_number_is_in_its_range_or_named_with_it(field, value):
    bracket, low, high = parts(BOUND, ALLOWED[field])
    is_above = float(low) < value if bracket == "(" else float(low) <= value
    if is_above and value <= float(high):
        assert in_range(field, value) == value
    else:
        name, shown, allowed = parts(REFUSAL, said(in_range, field, value))
        assert (name, allowed) == (field, ALLOWED[field])
        assert float(shown) == pytest.approx(value, rel=0, abs=0, nan_ok=True)


@each_case("field", ALLOWED)
def test_both_edges_of_a_range_are_as_its_brackets_say(field):
    bracket, low, high = parts(BOUND, ALLOWED[field])
    assert in_range(field, float(high)) == float(high)
    if bracket == "[":
        assert in_range(field, float(low)) == float(low)
    else:
        assert said(in_range, field, float(low)) == f"{field} {low} not in (0, {high}]"


@each_case(
    ("value", "shown"),
    [
        *((2.0, "2"), (2, "2"), (-0.5, "-0.5"), (1e300, "1e+300"), (0.1, "0.1")),
        *(("odd", "odd"), (10**20, "1" + "0" * 20), (1e15, "1" + "0" * 15)),
    ],
)
def test_a_refused_value_is_written_as_json_has_it(value, shown):
    assert str(out_of_range("x", value, "[1]")) == f"x {shown} not in [1]"


@pytest.mark.parametrize("value", [1, 2, 3])
def test_a_whole_number_between_its_bounds_is_kept(value):
    assert count_in_range("n", value, 1, 3) == value


@each_case("value", [0, 4, -1, 10**4000])
def test_a_whole_number_outside_its_bounds_is_named_with_them(value):
    assert said(count_in_range, "n", value, 1, 3) == f"n {value} not in [1, 3]"


def test_the_seed_is_the_requests_else_the_one_that_was_drawn():
    assert seed_of(None, drawn=7) == 7
    assert [seed_of(n, drawn=7) for n in (0, 2**32 - 2)] == [0, 2**32 - 2]
    assert said(seed_of, 2**32 - 1, drawn=7) == (
        "seed 4294967295 not in [0, 4294967294]"
    )


# --- what ends an answer ----------------------------------------------------------------


@pytest.mark.parametrize("value", [None, []])
def test_nothing_ends_an_answer_by_default(value):
    assert stops_of(value) == ()
    assert stop_tokens_of(value) == ()


def test_a_request_has_16_stop_strings_at_most():
    assert stops_of(["x"] * 16) == ("x",) * 16
    assert said(stops_of, ["x"] * 17) == "stop has 17 strings, at most 16 are allowed"


@each_case("letter", ["a", "é", "😀", "\0"])
def test_a_stop_string_is_counted_in_bytes(letter):
    fits = letter * (256 // len(letter.encode()))
    assert stops_of([letter, fits]) == (letter, fits)
    n_bytes = len((fits + letter).encode())
    assert said(stops_of, ["x", fits + letter]) == (
        f"stop[1] has {n_bytes} bytes, 1 to 256 are allowed"
    )


def test_a_stop_string_is_not_empty():
    assert said(stops_of, ["x", "x", ""]) == (
        "stop[2] has 0 bytes, 1 to 256 are allowed"
    )


def test_a_request_has_64_stop_tokens_at_most():
    assert stop_tokens_of([*range(64)]) == (*range(64),)
    assert said(stop_tokens_of, [0] * 65) == (
        "stop_token_ids has 65 entries, at most 64 are allowed"
    )


# --- biases -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, {}])
def test_no_score_is_changed_by_default(value):
    assert biases_of(value) == {}


def test_biases_are_by_token():
    given_ = {"0": -100.0, "4294967295": 100.0, "7": 0.0}
    assert biases_of(given_) == {0: -100.0, 2**32 - 1: 100.0, 7: 0.0}


@each_case(
    "key",
    ["", "-1", "+1", " 1", "1.0", "1_0", "0x1", "one", "²", "٣", "1" * 11, "07", "00"],
)
def test_a_token_is_an_id_in_decimal(key):
    assert said(biases_of, {"1": 1.0, key: 1.0}) == (
        f'logit_bias has a key that is not a decimal token id: "{key}"'
    )


@each_case(
    ("value", "shown"),
    [
        *((100.5, "100.5"), (-101.0, "-101"), (1e300, "1e+300")),
        *((math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")),
    ],
)
def test_a_bias_out_of_range_is_named_with_its_token(value, shown):
    assert said(biases_of, {"5": value}) == (
        f"logit_bias[5] {shown} not in [-100, 100]"
    )


def test_a_request_has_1024_biases_at_most():
    assert len(biases_of({str(token): 1.0 for token in range(1024)})) == 1024
    assert said(biases_of, {str(token): 1.0 for token in range(1025)}) == (
        "logit_bias has 1025 entries, at most 1024 are allowed"
    )


# --- turns ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_messages", [1, 65_536])
def test_a_conversation_may_have_so_many_turns(n_messages):
    check_message_count(n_messages)


def test_a_conversation_over_the_bound_is_refused():
    assert said(check_message_count, 0) == "messages must not be empty"
    assert said(check_message_count, 65_537) == (
        "messages has 65537 entries, at most 65536 are allowed"
    )


@pytest.mark.parametrize("model", [None, "x", "ü" * MAX_MODEL_CHARS])
def test_a_model_may_have_any_short_name(model):
    assert model_of(EmbedRequest(input=[], model=model)) == model


@pytest.mark.parametrize("n_chars", [0, MAX_MODEL_CHARS + 1])
def test_a_model_without_a_name_or_with_a_long_one_is_refused(n_chars):
    request = EmbedRequest(input=[], model="x" * n_chars)
    expected = f"model has {n_chars} characters, 1 to 128 are allowed"
    assert said(model_of, request) == expected


@each_case(
    "resolve",
    [
        lambda **model: resolve_v1(
            GenerateRequest(messages=[ChatMessage("user", "")], **model), seed=1
        ),
        lambda **model: resolve_v2(
            BlocksRequest(messages=[Message("user", [TextBlock("")])], **model), seed=1
        ),
        lambda **model: resolve_embed(EmbedRequest(input=["x"], **model)),
        lambda **model: resolve_rerank(
            RerankRequest(query="q", documents=["x"], **model)
        ),
    ],
    ids=["v1", "v2", "embed", "rerank"],
)
def test_every_request_may_name_its_model(resolve):
    assert resolve(model="m").model == "m"
    assert resolve().model is None
    with pytest.raises(InvalidRequestError, match="model has 0 characters"):
        resolve(model="")
