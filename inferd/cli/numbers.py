"""Numbers on the command line: what no request could carry is told with its option."""

import argparse
import math


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
