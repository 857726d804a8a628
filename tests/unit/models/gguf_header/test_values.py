import io
import math
import struct

from hypothesis import given, strategies as st

from inferd.limits.model_files import GGUF_ARRAY_NUMBERS
from inferd.models.gguf_header.reader import Reader
from inferd.models.gguf_header.values import (
    BOOL,
    F32,
    FLOATS,
    I32,
    KEPT_ITEMS,
    SIZES,
    U8,
    U32,
    U64,
    Value,
    read_number,
    read_numbers,
)
from tests.cases import each_case

VOCABULARY = "tokenizer.ggml.token_type"


def reader(content: bytes) -> Reader:
    return Reader(io.BytesIO(content), len(content))


def packed(code: str, *values: float) -> Reader:
    return reader(struct.pack(f"<{len(values)}{code}", *values))


@each_case(
    ("kind", "code", "number"),
    [
        (U8, "B", 255),
        (U32, "I", 2**32 - 1),
        (I32, "i", -(2**31)),
        (U64, "Q", 2**64 - 1),
        (F32, "f", 0.5),
        (BOOL, "?", 1),
    ],
)
def test_a_number_is_itself(kind, code, number):
    value = read_number(packed(code, number), kind)
    assert value == Value(kind, None, (number,), number, number)
    assert value.is_number


@given(
    st.sampled_from(["new", VOCABULARY]),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=3000),
)
def test_of_an_array_its_ends_are_known_and_its_items_if_they_are_few(key, numbers):
    value = read_numbers(packed("i", *numbers), key, I32, len(numbers))
    assert (value.n_items, value.low, value.high) == (
        len(numbers),
        min(numbers),
        max(numbers),
    )
    assert value.items == (tuple(numbers) if len(numbers) <= KEPT_ITEMS else ())
    assert not value.is_number


@given(st.lists(st.floats(width=32), max_size=50))
def test_an_array_is_finite_if_all_its_numbers_are(numbers):
    value = read_numbers(packed("f", *numbers), "new", F32, len(numbers))
    assert value.is_finite == all(map(math.isfinite, numbers))


def test_an_array_of_more_than_matters_is_passed_over_and_is_in_no_range():
    n_items = GGUF_ARRAY_NUMBERS + 1
    source = reader(bytes(n_items))
    value = read_numbers(source, "new", U8, n_items)
    assert (value.low, value.high, value.items) == (-math.inf, math.inf, ())
    assert source.at == n_items
    assert read_numbers(reader(bytes(n_items)), VOCABULARY, U8, n_items).high == 0


def test_floats_are_numbers_that_have_a_size():
    assert set(SIZES) > FLOATS
