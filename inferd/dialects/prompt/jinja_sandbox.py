"""Jinja2 sandbox with limits on the size of numbers and repetitions.

One operation on a huge number takes hours and blocks all Python threads, including those
that stream answers to other clients. So it is rejected before it begins.
"""

from collections.abc import Sequence
from typing import Final, Literal

from jinja2 import filters, tests
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferd.limits.prompts import TEMPLATE_NUMBER_BITS, TEMPLATE_OUTPUT_CHARS

_MOST_DIGITS: Final = 308
"""Decimal places that a float can be rounded to."""


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, with limits on the cost of arithmetic."""

    intercepted_binops: Final = frozenset({"*", "**", "//", "%"})  # type: ignore[misc]  # Jinja2 has no ClassVar

    def __init__(self, extensions: Sequence[type[Extension]] = ()) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters["round"] = _round
        self.tests["divisibleby"] = _is_divisible_by

    def call_binop(
        self, context: Context, operator: str, left: object, right: object
    ) -> object:
        """Evaluate a binary operator.

        Raises:
            SecurityError: the operation is too expensive.
        """
        refuse_expensive(operator, left, right)
        return super().call_binop(context, operator, left, right)


def refuse_expensive(operator: str, left: object, right: object) -> None:
    """Reject an operation whose operands or result are too large.

    Raises:
        SecurityError: they are.
    """
    if isinstance(left, int) and isinstance(right, int):
        if _n_bits(operator, left, right) > TEMPLATE_NUMBER_BITS:
            raise SecurityError(
                f"{operator} with a number over {TEMPLATE_NUMBER_BITS} bits is not allowed"
            )
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if _n_items(many, times) > TEMPLATE_OUTPUT_CHARS:
                raise SecurityError(f"* makes more than {TEMPLATE_OUTPUT_CHARS} items")


def _n_bits(operator: str, left: int, right: int) -> int:
    """Return an upper bound on the bits of operands and result."""
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
    """Round as Jinja2 does, with a limit on decimal places.

    Raises:
        SecurityError: the precision needs a huge power of ten.
    """
    if abs(precision) > _MOST_DIGITS:
        raise SecurityError(f"rounding to {precision} places is not allowed")
    refuse_expensive("%", value, 1)
    return filters.do_round(value, precision, method)


def _is_divisible_by(value: int, number: int) -> bool:
    """Test divisibility as Jinja2 does, for numbers of a limited size.

    Raises:
        SecurityError: a number is larger.
    """
    refuse_expensive("%", value, number)
    return tests.test_divisibleby(value, number)
