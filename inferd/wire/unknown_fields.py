"""Find the fields of a ``strict`` request that the protocol does not know.

Other requests are not searched: msgspec passes over unknown fields. The types of ``wire``
tell which fields there are at every level; JSON that is kept undecoded may have any.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct, inspect

from inferd.errors import InvalidRequestError
from inferd.limits.protocol import (
    MAX_BLOCK_DEPTH,
    MAX_UNKNOWN_FIELD_CHARS,
    MAX_UNKNOWN_FIELDS,
    STRICT_OBJECTS,
)
from inferd.wire.requests import Request

_Object = dict[str, Raw]
_OBJECT: Final[msgspec.json.Decoder[_Object]] = msgspec.json.Decoder(dict[str, Raw])
_ARRAY: Final = msgspec.json.Decoder(list[Raw])
_TAG: Final = msgspec.json.Decoder(str)
_MAX_DEPTH: Final = MAX_BLOCK_DEPTH + 2
"""Objects inside each other: the request, a message and its blocks."""


class _Shape(NamedTuple):
    """The fields of a type of objects."""

    names: frozenset[str]
    tag_field: str | None
    parts: Mapping[str, Mapping[str, type[Struct]]]
    """Those that are an object or an array of objects: the types of these by their tags,
    or by an empty string."""


class _Unknown(NamedTuple):
    """An unknown field."""

    path: str
    beside: type[Struct]
    """The type of the object that has it."""


def strict_refusal(frame: bytes, request: Request) -> InvalidRequestError | None:
    """Return the refusal of a strict request that has unknown fields, else ``None``.

    Args:
        frame: the frame of the request.
        request: decoded from it.

    Bounds:
        The text has the paths of ``MAX_UNKNOWN_FIELDS``. Each byte is passed over once for
        every level of objects, of which there are 18. What is nested more deeply, or behind
        ``STRICT_OBJECTS``, is not searched, as ``resolve`` refuses such requests.
    """
    if not request.strict:
        return None
    try:
        unknown = _Search().run(_OBJECT.decode(frame), type(request), 1)
        found = [*islice(unknown, MAX_UNKNOWN_FIELDS + 1)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return InvalidRequestError("strict: the names of the fields cannot be read")
    return _refusal(found) if found else None


def _refusal(found: list[_Unknown]) -> InvalidRequestError:
    paths = [each.path.lstrip(".") for each in found[:MAX_UNKNOWN_FIELDS]]
    more = " and more" if len(found) > MAX_UNKNOWN_FIELDS else ""
    shape = _shape_of(found[0].beside)
    allowed = sorted({*shape.names, *filter(None, [shape.tag_field])})
    return InvalidRequestError(
        f"strict: no such field: {', '.join(paths)}{more}; "
        f"allowed beside {paths[0]}: {', '.join(allowed)}"
    )


class _Search:
    """Search of a request, which makes paths for unknown fields alone."""

    def __init__(self) -> None:
        self._n_objects = 0

    def run(
        self, fields: _Object, kind: type[Struct], depth: int
    ) -> Iterator[_Unknown]:
        """Yield the unknown fields of an object."""
        shape = _shape_of(kind)
        for name, value in fields.items():
            if types := shape.parts.get(name):
                for path, beside in self._run_part(value, types, depth + 1):
                    yield _Unknown(f".{name}{path}", beside)
            elif name not in shape.names and name != shape.tag_field:
                yield _Unknown(f".{name[:MAX_UNKNOWN_FIELD_CHARS]}", kind)

    def _run_part(
        self, value: Raw, types: Mapping[str, type[Struct]], depth: int
    ) -> Iterator[_Unknown]:
        self._n_objects += 1
        if depth > _MAX_DEPTH or self._n_objects > STRICT_OBJECTS:
            return
        match bytes(memoryview(value)[:1]):
            case b"{":
                fields = _OBJECT.decode(value)
                kind = _type_among(types, fields)
                if kind is not None:
                    yield from self.run(fields, kind, depth)
            case b"[":
                for index, item in enumerate(_ARRAY.decode(value)):
                    for path, beside in self._run_part(item, types, depth):
                        yield _Unknown(f"[{index}]{path}", beside)
            case _:
                pass  # another type of the field, such as a string


def _type_among(
    types: Mapping[str, type[Struct]], fields: _Object
) -> type[Struct] | None:
    """Choose the type that an object has; ``None`` for one of an unknown type."""
    if "" in types:
        return types[""]
    for kind in types.values():
        tag_field = kind.__struct_config__.tag_field
        return types.get(_TAG.decode(fields[tag_field])) if tag_field else None
    return None


@cache
def _shape_of(kind: type[Struct]) -> _Shape:
    parts: dict[str, dict[str, type[Struct]]] = {}
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)  # noqa: S101  # for the type checker
    for field in info.fields:
        if types := {str(each.tag or ""): each.cls for each in _objects_in(field.type)}:
            parts[field.encode_name] = types
    names = frozenset(field.encode_name for field in info.fields)
    return _Shape(names, info.tag_field, parts)


def _objects_in(kind: inspect.Type) -> Iterator[inspect.StructType]:
    match kind:
        case inspect.StructType():
            yield kind
        case inspect.UnionType(types=members):
            for member in members:
                yield from _objects_in(member)
        case inspect.ListType(item_type=item):
            yield from _objects_in(item)
        case _:
            pass
