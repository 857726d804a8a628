"""Numbers on the command line: what no request could carry is told with its option."""

import argparse
import math
from collections.abc import Callable
from typing import Final

from inferd.limits import U32_MAX


def finite(text: str) -> float:
    """Read a number, but for those that JSON has not.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return number


def whole(low: int, high: int) -> Callable[[str], int]:
    """Make what reads whole numbers of a range."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number"
            ) from None
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text} not in [{low}, {high}]")
        return number

    return read


u32: Final = whole(0, U32_MAX)
"""Reads what the wire has for a count; what it may be is for the daemon to say."""
