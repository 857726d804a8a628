"""Read schemas, and refuse numbers that their compiler would change.

It reads them as floating-point numbers, roughly, and writes those: an answer would hold
another number than its schema does. Some make it crash.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from inferd.dialects.effort import step
from inferd.worker.backend import RefusedError
from inferd.worker.llama.places import schemas_in

_LARGEST: Final = 2**53
"""Whole numbers up to here are all floating-point numbers."""
_PLACES: Final = 22
"""Powers of ten up to here are, too: by one of them an exact number of digits is divided
as well as can be."""
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
        source: its JSON. A number that no floating-point number reaches becomes an
            infinite one, which is refused like all that are too large.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        return json.loads(source, parse_int=_number)
    except RecursionError as error:
        raise RefusedError(f"{field}: it is nested too deeply") from error
    except ValueError as error:
        raise RefusedError(f"{field}: it is no JSON") from error


def _number(digits: str) -> float:
    """Read a whole number; Python takes none of very many digits, and some time for it."""
    return int(digits) if len(digits) <= _DIGITS_MAX else float(digits)


def refuse_numbers(field: str, schema: object) -> None:
    """See that a schema's listed values and bounds survive being compiled.

    Args:
        field: where the schema is from.
        schema: as Python objects.

    Raises:
        RefusedError: one does not; the text says where.
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
        inner = [(where + place, each) for place, each in schemas_in(here)]
        left += reversed(inner)


def _numbers_of(schema: Mapping[str, object]) -> Iterator[tuple[str, int | float]]:
    """Give the numbers that values are compared with, each with the pointer from there."""
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
