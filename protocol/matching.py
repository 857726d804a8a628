"""Compare what a daemon said with what a vector expects: see vectors/README.md."""

import json
from itertools import pairwise
from typing import Final, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Frame: TypeAlias = dict[str, Json]

_KINDS_BY_TYPE: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
KINDS: Final = ("string", "number", "integer", "boolean", "array", "object")
ABSENT: Final[Json] = {"$absent": True}
QUOTED_CHARS: Final = 300
"""Characters of a value that a message repeats."""


class PatternError(ValueError):
    """An expectation that says nothing that can be compared."""


class Matcher:
    """Compares frames with expectations, and remembers what ``$same`` stands for."""

    def __init__(self) -> None:
        self._known: dict[str, Json] = {}

    def difference(self, expected: Json, actual: Json, where: str = "$") -> str | None:
        """Say where the two differ first; ``None`` if they match."""
        found: str | None
        match expected:
            case {"$any": str(kind)}:
                is_so = kind in kinds_of(actual)
                found = None if is_so else f"{where} is {quote(actual)}, not any {kind}"
            case {"$starts": str(start)}:
                is_so = isinstance(actual, str) and actual.startswith(start)
                found = (
                    None
                    if is_so
                    else f"{where} is {quote(actual)}, does not begin with {start!r}"
                )
            case {"$same": str(name)}:
                found = self._other_than_before(name, actual, where)
            case dict() if "$each" in expected:
                found = self._in_each(expected, actual, where)
            case dict():
                found = self._in_members(expected, actual, where)
            case list():
                found = self._in_elements(expected, actual, where)
            case _:
                is_so = kinds_of(expected)[0] == kinds_of(actual)[0]
                found = (
                    None
                    if is_so and expected == actual
                    else f"{where} is {quote(actual)}, not {quote(expected)}"
                )
        return found

    def _other_than_before(self, name: str, actual: Json, where: str) -> str | None:
        before = self._known.setdefault(name, actual)
        if before == actual:
            return None
        return f"{where} is {quote(actual)}, and was {quote(before)} as {name!r}"

    def _in_each(self, expected: Frame, actual: Json, where: str) -> str | None:
        if not isinstance(actual, list):
            return f"{where} is {quote(actual)}, not an array"
        times, field = expected.get("times"), expected.get("descending")
        if times is not None and times != len(actual):
            return f"{where} has {len(actual)} elements, not {times}"
        if isinstance(field, str) and not _descends(actual, field):
            return f"{where} is not sorted by {field}, the largest first"
        for index, element in enumerate(actual):
            if found := self.difference(
                expected["$each"], element, f"{where}[{index}]"
            ):
                return found
        return None

    def _in_members(self, expected: Frame, actual: Json, where: str) -> str | None:
        if not isinstance(actual, dict):
            return f"{where} is {quote(actual)}, not an object"
        for name, wanted in expected.items():
            place = f"{where}.{name}"
            if wanted == ABSENT:
                found = f"{place} should be absent" if name in actual else None
            elif name not in actual:
                found = f"{place} is missing"
            else:
                found = self.difference(wanted, actual[name], place)
            if found:
                return found
        return None

    def _in_elements(
        self, expected: list[Json], actual: Json, where: str
    ) -> str | None:
        if not isinstance(actual, list):
            return f"{where} is {quote(actual)}, not an array"
        if len(actual) != len(expected):
            return f"{where} has {len(actual)} elements, not {len(expected)}"
        for index, (wanted, element) in enumerate(zip(expected, actual, strict=True)):
            if found := self.difference(wanted, element, f"{where}[{index}]"):
                return found
        return None


def check_pattern(pattern: Json) -> None:
    """Make sure that every ``$`` in an expectation has a meaning.

    Raises:
        PatternError: naming the part that has none.
    """
    match pattern:
        case dict() if any(name.startswith("$") for name in pattern):
            _check_special(pattern)
        case dict():
            for value in pattern.values():
                check_pattern(value)
        case list():
            for value in pattern:
                check_pattern(value)
        case _:
            pass  # it stands for itself


def _check_special(pattern: Frame) -> None:
    match pattern:
        case {"$any": str(kind), **rest} if not rest and kind in KINDS:
            pass
        case {"$starts": str(), **rest} if not rest:
            pass
        case {"$same": str(), **rest} if not rest:
            pass
        case {"$absent": True, **rest} if not rest:
            pass
        case {"$each": each, **rest} if rest.keys() <= {"times", "descending"}:
            check_pattern(each)
        case _:
            raise PatternError(f"no expectation: {quote(pattern)}")


def kinds_of(value: Json) -> tuple[str, ...]:
    """Name the JSON types of a value, the widest first."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ("number", "integer")
    return (_KINDS_BY_TYPE[type(value)],)


def quote(value: Json) -> str:
    """Write a value as JSON, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"


def _descends(elements: list[Json], field: str) -> bool:
    values = [each.get(field) if isinstance(each, dict) else None for each in elements]
    return all(
        isinstance(left, (int, float))
        and isinstance(right, (int, float))
        and left >= right
        for left, right in pairwise(values)
    )
