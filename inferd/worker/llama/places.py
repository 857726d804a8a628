"""Find the schemas in a schema, and where they are."""

from collections.abc import Iterator, Mapping
from typing import Final

SHARED: Final = ("$defs", "definitions")
"""Keywords under which schemas stand that others refer to."""
_MAPS: Final = (*SHARED, "properties", "patternProperties")
"""Keywords that hold schemas by names of the client's."""


def schemas_in(schema: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """Give the schemas right in a schema, each with the pointer from there."""
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
