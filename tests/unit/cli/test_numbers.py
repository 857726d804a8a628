import argparse

import pytest

from inferd.cli.numbers import finite


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0.0), ("-1.5", -1.5), ("1e-3", 0.001), (" 2 ", 2.0)]
)
def test_a_number_is_read(text, number):
    assert finite(text) == number


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999"])
def test_what_json_has_not_is_no_number(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not finite$"):
        finite(text)


@pytest.mark.parametrize("text", ["", "hot", "1,5", "0x10"])
def test_what_is_no_number_is_told(text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"^'{text}' is not a number$"):
        finite(text)
