"""argparse types for numbers; out-of-range values are reported with their option."""

import argparse
import math
from collections.abc import Callable
from typing import Final

from inferd.limits.protocol import U32_MAX


def finite_float(text: str) -> float:
    """Parse a finite number; JSON has no other.

    Raises:
        ArgumentTypeError: it is not one.
    """
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return number


def int_range(low: int, high: int) -> Callable[[str], int]:
    """Make an argparse type for integers from ``low`` to ``high``."""

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


u32: Final = int_range(0, U32_MAX)
"""Parses a count as wide as the wire allows; the daemon checks tighter ranges."""
