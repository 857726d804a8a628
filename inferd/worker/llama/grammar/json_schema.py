"""Parse JSON schemas, and refuse numbers that the grammar compiler would change.

llguidance reads numbers as imprecise floating-point numbers and puts these in the grammar, so
an answer would hold another number than its schema. Some numbers crash it.

Which keywords are enforced is not decided here. For ``response_format`` and for calls that
are JSON, llguidance compiles the schema, and refuses keywords that it does not support. For
calls in another syntax, ``dialects.schema.subset`` has the list, and the modules
``dialects.calls.gemma4_grammar`` and ``tagged_grammar`` write the rules.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from inferd.dialects.step_limit import step
from inferd.worker.backend import RefusedError

DEFINITION_KEYWORDS: Final = ("$defs", "definitions")
"""Keywords that hold schemas to which others refer."""
_MAPS: Final = (*DEFINITION_KEYWORDS, "properties", "patternProperties")
"""Keywords that hold schemas by names that the client chose."""


def direct_subschemas(
    schema: Mapping[str, object],
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the direct subschemas of a schema, with the JSON pointer from it."""
    for key, value in schema.items():
        match value:
            case dict() if key in _MAPS:
                inner = [(f"/{key}/{name}", each) for name, each in value.items()]
            case dict():
                inner = [(f"/{key}", value)]
            case list():
                inner = [(f"/{key}/{index}", each) for index, each in enumerate(value)]
            case _:
                inner = []
        yield from ((step, each) for step, each in inner if isinstance(each, dict))


_LARGEST: Final = 2**53
"""All integers up to here are floating-point numbers."""
_PLACES: Final = 22
"""Powers of ten up to this exponent are floating-point numbers, too, so dividing an exact
integer by one of them rounds correctly."""
_DIGITS_MAX: Final = 309
"""Digits of the largest floating-point number."""
_LISTED: Final = ("const", "enum")
_BOUNDS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)


def read_schema(field: str, source: str) -> object:
    """Read a schema as Python objects.

    Args:
        field: where it is from.
        source: its JSON. A number beyond the range of floats becomes infinite, and is
            refused as too large.

    Raises:
        RefusedError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(source, parse_int=_number)
    except RecursionError as error:
        raise RefusedError(f"{field}: it is nested too deeply") from error
    except ValueError as error:
        raise RefusedError(f"{field}: it is no JSON") from error


def _number(digits: str) -> float:
    """Parse an integer; Python refuses very long ones, and takes quadratic time."""
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


def refuse_inexact_numbers(field: str, schema: object) -> None:
    """Check that the compiler keeps a schema's listed values and bounds unchanged.

    Args:
        field: where the schema is from.
        schema: as Python objects.

    Raises:
        RefusedError: one would change; the text says where.
    """
    left = [(field, schema)]
    while left:
        where, here = left.pop()
        step(1 + len(where))
        if not isinstance(here, dict):
            continue
        for place, number in _numbers_of(here):
            if not _survives(number):
                raise RefusedError(
                    f"{where}{place}: {json.dumps(number)} is not supported: numbers "
                    "are kept up to 15 digits, within 2 to the power of 53"
                )
        inner = [(where + place, each) for place, each in direct_subschemas(here)]
        left += reversed(inner)


def _numbers_of(schema: Mapping[str, object]) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers that values are compared with, with their JSON pointers."""
    keys = [key for key in (*_LISTED, *_BOUNDS) if key in schema]
    left = deque((f"/{key}", schema[key]) for key in keys)
    while left:
        where, here = left.popleft()
        step(1 + len(where))
        match here:
            case int() | float() if not isinstance(here, bool):
                yield where, here
            case list():
                left += [(f"{where}/{index}", each) for index, each in enumerate(here)]
            case dict():
                left += [(f"{where}/{name}", each) for name, each in here.items()]
            case _:
                pass


def _survives(number: float) -> bool:
    if not abs(number) <= _LARGEST:
        return False
    if isinstance(number, int):
        return True
    _, digits, exponent = Decimal(repr(number)).as_tuple()
    whole = int("".join(map(str, digits)))
    return float(whole) == whole and int(exponent) >= -_PLACES
