"""Whether JSON satisfies a schema, as far as the daemon enforces schemas.

A keyword that is not known here asks for nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

MAX_DEPTH: Final = 128
"""Levels of a document and of references within a schema; what is deeper does not match."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value == int(value),
}


def matches(document: object, schema: object) -> bool:
    """Tell whether decoded JSON satisfies a schema."""
    return _Check(schema).is_valid(document, schema, 0)


class _Check:
    def __init__(self, root: object) -> None:
        self._root = root

    def is_valid(self, value: object, schema: object, depth: int) -> bool:
        if isinstance(schema, bool):
            return schema
        if depth > MAX_DEPTH:
            return False
        if not isinstance(schema, dict):
            return True
        return (
            self._has_type(value, schema)
            and self._is_listed(value, schema)
            and self._fits_others(value, schema, depth + 1)
            and self._fits_kind(value, schema, depth + 1)
        )

    def _has_type(self, value: object, schema: Mapping[str, object]) -> bool:
        wanted = schema.get("type")
        names = wanted if isinstance(wanted, list) else [wanted]
        return wanted is None or any(
            isinstance(name, str) and name in _TYPES and _TYPES[name](value)
            for name in names
        )

    def _is_listed(self, value: object, schema: Mapping[str, object]) -> bool:
        allowed = schema.get("enum")
        if isinstance(allowed, list) and not any(
            _same(value, each) for each in allowed
        ):
            return False
        return "const" not in schema or _same(value, schema["const"])

    def _fits_others(
        self, value: object, schema: Mapping[str, object], depth: int
    ) -> bool:
        """Tell whether a value fits the schemas that a schema refers to."""

        def fitting(keyword: str) -> list[bool] | None:
            among = schema.get(keyword)
            if not isinstance(among, list):
                return None
            return [self.is_valid(value, each, depth) for each in among]

        fits_all, fits_any, fits_one = map(fitting, ("allOf", "anyOf", "oneOf"))
        if "$ref" in schema and not self._fits_reference(value, schema["$ref"], depth):
            return False
        if "not" in schema and self.is_valid(value, schema["not"], depth):
            return False
        return (
            (fits_all is None or all(fits_all))
            and (fits_any is None or any(fits_any))
            and (fits_one is None or sum(fits_one) == 1)
        )

    def _fits_reference(self, value: object, reference: object, depth: int) -> bool:
        """Tell whether a value fits what ``#/…`` names; another address asks for nothing."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        found: object = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name, True) if isinstance(found, dict) else True
        return self.is_valid(value, found, depth)

    def _fits_kind(
        self, value: object, schema: Mapping[str, object], depth: int
    ) -> bool:
        match value:
            case dict():
                return self._fits_object(value, schema, depth)
            case list():
                return self._fits_array(value, schema, depth)
            case str():
                return _fits_text(value, schema)
            case int() | float() if not isinstance(value, bool):
                return _fits_number(value, schema)
            case _:
                return True

    def _fits_object(
        self, value: Mapping[str, object], schema: Mapping[str, object], depth: int
    ) -> bool:
        known = schema.get("properties")
        properties = known if isinstance(known, dict) else {}
        required = schema.get("required")
        if isinstance(required, list) and any(name not in value for name in required):
            return False
        if not _within(len(value), schema, "minProperties", "maxProperties"):
            return False
        other = schema.get("additionalProperties", True)
        return all(
            self.is_valid(each, properties.get(name, other), depth)
            for name, each in value.items()
        )

    def _fits_array(
        self, value: list[object], schema: Mapping[str, object], depth: int
    ) -> bool:
        first = schema.get("prefixItems")
        heads = first if isinstance(first, list) else []
        rest = schema.get("items", True)
        if not _within(len(value), schema, "minItems", "maxItems"):
            return False
        if schema.get("uniqueItems") is True and any(
            _same(each, other)
            for index, each in enumerate(value)
            for other in value[:index]
        ):
            return False
        return all(
            self.is_valid(each, heads[index] if index < len(heads) else rest, depth)
            for index, each in enumerate(value)
        )


def _fits_text(value: str, schema: Mapping[str, object]) -> bool:
    pattern = schema.get("pattern")
    return _within(len(value), schema, "minLength", "maxLength") and (
        not isinstance(pattern, str) or re.search(pattern, value) is not None
    )


def _fits_number(value: float, schema: Mapping[str, object]) -> bool:
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    step = schema.get("multipleOf")
    return (
        _within(value, schema, "minimum", "maximum")
        and not (isinstance(above, int | float) and value <= above)
        and not (isinstance(below, int | float) and value >= below)
        and not (isinstance(step, int | float) and step > 0 and value % step != 0)
    )


def _within(number: float, schema: Mapping[str, object], least: str, most: str) -> bool:
    low, high = schema.get(least), schema.get(most)
    return not (isinstance(low, int | float) and number < low) and not (
        isinstance(high, int | float) and number > high
    )


def _same(value: object, other: object) -> bool:
    """Tell whether two values are the same JSON: ``true`` is not 1, and 1.0 is."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _same(each, other[name]) for name, each in value.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if _is_number(value) and _is_number(other):
        return value == other
    return type(value) is type(other) and value == other
