"""What of a schema is held to by the grammars that families without JSON need.

It is a list of what is allowed: whatever else JSON Schema has a word for is refused where
it stands. Words that it does not know say nothing about values, here as everywhere.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from inferd.dialects.effort import step
from inferd.dialects.schemas import (
    ANNOTATIONS,
    SHARED,
    Schema,
    kinds,
    kinds_of,
    options,
    pointed_at,
    properties,
    required,
    values,
)

NOTHING_FITS: Final = "nothing can satisfy it"
_EVERY: Final = frozenset(
    {
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then"),
        *("else", "$ref", "$dynamicRef", "$recursiveRef", "$dynamicAnchor"),
    }
)
"""Keywords for values of any kind."""
_NUMERIC: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        "multipleOf",
    }
)
_OF_KIND: Final = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "boolean": frozenset[str](),
    "null": frozenset[str](),
    "array": frozenset(
        {
            *("items", "minItems", "maxItems", "prefixItems", "additionalItems"),
            *("uniqueItems", "contains", "minContains", "maxContains"),
            "unevaluatedItems",
        }
    ),
    "object": frozenset(
        {
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("propertyNames", "minProperties", "maxProperties", "dependencies"),
            *("dependentRequired", "dependentSchemas", "unevaluatedProperties"),
        }
    ),
}
_HELD_TO: Final = _NUMERIC | {
    *("type", "minLength", "maxLength", "pattern", "items", "minItems", "maxItems"),
    *("properties", "required", "additionalProperties"),
}
"""What is held to of a schema that neither lists values nor schemas."""
_INTO_SHARED: Final = tuple(f"#/{each}/" for each in SHARED)
MAX_STEPS: Final = 8
"""References followed from one to the next."""


class UnenforceableError(Exception):
    """A schema that cannot be held to.

    Args:
        where: a JSON pointer to it.
        why: in few words.
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")


class Placed(NamedTuple):
    """A part of a schema, and where it stands."""

    schema: object
    where: str = ""

    def at(self, *steps: str | int) -> "Placed":
        """Go to a part of it, which has to be there."""
        here, where = self
        for each in steps:
            here = here[each]  # type: ignore[index]  # the caller has looked
            where += f"/{each}"
            step(len(where))
        return Placed(here, where)

    def refused(self, *keywords: str) -> UnenforceableError:
        """Make the error for keywords in it."""
        listed = ", ".join(f'"{each}"' for each in keywords)
        return UnenforceableError(self.where, f"not supported: [{listed}]")


class Member(NamedTuple):
    """A property of an object."""

    name: str
    value: Placed
    is_needed: bool


def refuse_references(schema: object, where: str) -> None:
    """Refuse references to what does not go along with a part of a schema.

    Raises:
        UnenforceableError: there is one.
    """
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        step()
        if isinstance(here, dict):
            pointer = here.get("$ref", _INTO_SHARED[0])
            if isinstance(pointer, str) and not pointer.startswith(_INTO_SHARED):
                why = f"references may lead to {' and '.join(_INTO_SHARED)} alone"
                raise UnenforceableError(where, why)
        waiting += here.values() if isinstance(here, dict) else ()
        waiting += here if isinstance(here, list) else ()


def keywords_of(kind: str) -> frozenset[str]:
    """Give the keywords that say something of values of a kind."""
    return _OF_KIND[kind]


def checked(part: Placed, root: Schema) -> tuple[Schema, str]:
    """Follow references, and see that what they lead to can be held to by itself.

    Returns:
        The schema, and where it stands.

    Raises:
        UnenforceableError: it cannot.
    """
    step(len(part.where))
    part = followed(part, root)
    schema = {} if part.schema is True else part.schema
    if schema is False:
        raise UnenforceableError(part.where, NOTHING_FITS)
    if not isinstance(schema, dict):
        return {}, part.where
    known = _known(schema, root)
    if excess := sorted(known - _allowed(schema)):
        raise part.refused(*excess)
    if "oneOf" in known:
        _check_exclusive(part, root)
    return schema, part.where


def followed(part: Placed, root: Schema) -> Placed:
    """Follow references, and the only schema of ``allOf``.

    Raises:
        UnenforceableError: they lead nowhere, or something stands beside them.
    """
    for _ in range(MAX_STEPS):
        schema = part.schema
        if not isinstance(schema, dict) or not {"$ref", "allOf"} & schema.keys():
            return part
        match schema:
            case {"$ref": str(pointer)} if stands_alone(schema, "$ref"):
                part = Placed(pointed_at(pointer, root), pointer.removeprefix("#"))
                if part.schema is None:
                    raise UnenforceableError(part.where, "there is no such schema")
            case {"allOf": [_]} if stands_alone(schema, "allOf"):
                part = part.at("allOf", 0)
            case _:
                raise part.refused(*sorted({"$ref", "allOf"} & schema.keys()))
    raise UnenforceableError(part.where, "references lead round and round")


def listed_values(schema: Schema, where: str) -> list[object] | None:
    """List the values that are allowed, if it lists them, as far as their kinds are.

    Raises:
        UnenforceableError: there is none.
    """
    listed = values(schema)
    if listed is None:
        return None
    step(len(listed))
    typed = kinds({key: schema[key] for key in schema if key == "type"}, {})
    found = [each for each in listed if kinds_of(each) & typed]
    if not found:
        raise UnenforceableError(where, NOTHING_FITS)
    return found


def choices(schema: Schema, where: str) -> list[Placed] | None:
    """List the schemas of which one has to fit, if there are such."""
    given = options(schema)
    step(len(given or ()) * (1 + len(where)))
    key = "anyOf" if "anyOf" in schema else "oneOf"
    if given is None:
        return None
    return [Placed(each, f"{where}/{key}/{index}") for index, each in enumerate(given)]


def members(schema: Schema, where: str) -> tuple[list[Member], Placed | None]:
    """List the properties of an object, and give what others may be.

    Others are written only where none is listed by name.

    Raises:
        UnenforceableError: one is needed and cannot be there.
    """
    needed = dict.fromkeys(required(schema))
    listed = properties(schema)
    step((len(needed) + len(listed)) * (1 + len(where)))
    others = Placed(schema.get("additionalProperties", True), where)
    others = others._replace(where=f"{where}/additionalProperties")
    found = [*_listed(schema, where, needed)]
    unlisted = [name for name in needed if name not in listed]
    found += [Member(name, others, is_needed=True) for name in unlisted]
    may_have_others = "properties" not in schema and others.schema is not False
    for each in found:
        if each.is_needed and each.value.schema is False:
            raise UnenforceableError(where, NOTHING_FITS)
    found = [each for each in found if each.value.schema is not False]
    return found, others if may_have_others else None


def _listed(schema: Schema, where: str, needed: Collection[str]) -> Iterator[Member]:
    for name, value in properties(schema).items():
        part = Placed(value, f"{where}/properties/{name}")
        yield Member(name, part, is_needed=name in needed)


def _known(schema: Schema, root: Schema) -> frozenset[str]:
    """Find the keywords that say something of the values that it may allow."""
    allowed = kinds(schema, root)
    words = _EVERY.union(*(_OF_KIND[kind] for kind in allowed))
    idle = ["uniqueItems"] if schema.get("uniqueItems") is False else []
    return frozenset(words & schema.keys()).difference(idle)


def _allowed(schema: Schema) -> frozenset[str]:
    for keyword in ("const", "enum"):
        if keyword in schema:
            return frozenset({keyword, "type"})
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return frozenset({keyword})
    return _HELD_TO


def _check_exclusive(part: Placed, root: Schema) -> None:
    """Refuse ``oneOf`` unless the kinds of its schemas tell them apart."""
    seen: set[str] = set()
    for each in choices(part.schema, part.where) or ():  # type: ignore[arg-type]
        allowed = set(kinds(each.schema, root))
        allowed |= {"integer"} if "number" in allowed else set()
        if seen & allowed:
            raise UnenforceableError(
                part.where,
                "oneOf is only supported where its schemas are of different kinds",
            )
        seen |= allowed


def stands_alone(schema: Schema, *keywords: str) -> bool:
    """Tell whether nothing beside these keywords allows or forbids anything."""
    return schema.keys() - {*keywords} <= ANNOTATIONS | {"$anchor"}
