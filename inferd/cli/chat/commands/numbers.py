"""Numbers of a list that was shown; pure."""

from collections.abc import Sequence
from typing import Final, TypeVar

from inferd.cli.console import CommandError

T = TypeVar("T")
_MAX_DIGITS: Final = 9


def chosen(listed: Sequence[T], number: str, hint: str) -> T:
    """Return what a number of a list means, which begins at 1.

    Raises:
        CommandError: there is none of that number.
    """
    if not (number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS):
        raise CommandError(f"{number or 'no number'}: a number is wanted; {hint}")
    if not 1 <= int(number) <= len(listed):
        raise CommandError(f"{number}: there are {len(listed)}; {hint}")
    return listed[int(number) - 1]
