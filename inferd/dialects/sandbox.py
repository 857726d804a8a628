"""What a chat template may compute with: numbers and repetitions of a bounded size.

One operation on a huge number takes hours, and all threads of Python wait for it, those
that stream answers to others among them. So it is refused before it begins.
"""

from collections.abc import Sequence
from typing import Final, Literal

from jinja2 import filters, tests
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferd.limits import TEMPLATE_NUMBER_BITS, TEMPLATE_OUTPUT_CHARS

_MOST_DIGITS: Final = 308
"""Decimal places that a float can be rounded to."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, in which no single piece of arithmetic takes long."""

    intercepted_binops: Final = frozenset({"*", "**", "//", "%"})  # type: ignore[misc]  # Jinja2 has no ClassVar

    def __init__(self, extensions: Sequence[type[Extension]] = ()) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters["round"] = _round
        self.tests["divisibleby"] = _is_divisible_by

    def call_binop(
        self, context: Context, operator: str, left: object, right: object
    ) -> object:
        """Compute, unless that is a lot of work.

        Raises:
            SecurityError: it is.
        """
        refuse_work(operator, left, right)
        return super().call_binop(context, operator, left, right)


def refuse_work(operator: str, left: object, right: object) -> None:
    """Refuse to compute with what is larger than any template's business.

    Raises:
        SecurityError: it is.
    """
    if isinstance(left, int) and isinstance(right, int):
        if _n_bits(operator, left, right) > TEMPLATE_NUMBER_BITS:
            raise SecurityError(f"{operator} with a number as large as that is unsafe")
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if _n_items(many, times) > TEMPLATE_OUTPUT_CHARS:
                raise SecurityError("* makes too much of it")


def _n_bits(operator: str, left: int, right: int) -> int:
    """Bound the size of what goes in and comes out; a negative power is a fraction."""
    match operator:
        case "**":
            return max(left.bit_length(), 1) * max(right, 1)
        case "*":
            return left.bit_length() + right.bit_length()
        case _:
            return max(left.bit_length(), right.bit_length())


def _n_items(many: object, times: object) -> int:
    if isinstance(many, str | bytes | list | tuple) and isinstance(times, int):
        return len(many) * times
    return 0


def _round(
    value: float,
    precision: int = 0,
    method: Literal["common", "ceil", "floor"] = "common",
) -> float:
    """Round as Jinja2 does, to as many places as a number has.

    Raises:
        SecurityError: it would take a huge power of ten.
    """
    if abs(precision) > _MOST_DIGITS:
        raise SecurityError(f"rounding to {precision} places is unsafe")
    refuse_work("%", value, 1)
    return filters.do_round(value, precision, method)


def _is_divisible_by(value: int, number: int) -> bool:
    """Tell as Jinja2 does, for numbers of a bounded size.

    Raises:
        SecurityError: one is larger.
    """
    refuse_work("%", value, number)
    return tests.test_divisibleby(value, number)
