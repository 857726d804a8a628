import argparse

import pytest

from inferd.cli.numbers import finite_float, int_range, u32
from tests.cases import each_case


@each_case(
    ("text", "number"), [("0", 0.0), ("-1.5", -1.5), ("1e-3", 0.001), (" 2 ", 2.0)]
)
def test_a_number_is_read(text, number):
    assert finite_float(text) == number


@each_case("text", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999"])
def test_what_json_has_not_is_no_number(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not finite$"):
        finite_float(text)


@each_case("text", ["", "hot", "1,5", "0x10"])
def test_a_text_that_is_not_a_number_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a number$"):
        finite_float(text)


# --- whole numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), (" 7 ", 7), ("4294967295", 2**32 - 1)]
)
def test_a_whole_number_is_read(text, number):
    assert u32(text) == number


@each_case(
    ("read", "text", "allowed"),
    [
        (u32, "-1", "[0, 4294967295]"),
        (u32, "4294967296", "[0, 4294967295]"),
        (int_range(1, 5), "0", "[1, 5]"),
        (int_range(1, 5), "6", "[1, 5]"),
    ],
)
def test_a_whole_number_out_of_range_is_refused_with_the_range(read, text, allowed):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        read(text)
    assert str(caught.value) == f"{text} not in {allowed}"


@each_case("text", ["", "many", "1.0", "1e3", "9" * 5000])
def test_a_text_that_is_not_a_whole_number_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number$"):
        u32(text)
