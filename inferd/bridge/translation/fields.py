"""Tables of the fields of an API: which are honoured, ignored or refused.

The decision about each field of a request follows from these tables, and so does the
reference in ``docs/``.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import MAX_STATED_CHARS, MAX_STATED_NAMES


class Use(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    IGNORED = "harmless and ignored"
    REFUSED = "refused"


class Field(Struct, frozen=True):
    """A field of a request."""

    name: str
    use: Use
    note: str = ""
    """A sentence for the reference, and for the caller where it is refused."""
    neutral: tuple[object, ...] = ()
    """Values that ask for nothing, with which a refused field is accepted."""


class FieldTable(Struct, frozen=True):
    """The fields of the requests of one route."""

    title: str
    """The route, as the reference names it."""
    fields: Sequence[Field]

    def select(self, body: Mapping[str, object]) -> dict[str, object]:
        """Return the honoured fields of a request that are set; ``null`` sets nothing.

        Raises:
            BridgeError: a field is unknown, or refused.
        """
        known = {field.name: field for field in self.fields}
        unknown = [name for name in body if name not in known]
        if unknown:
            raise _unknown(unknown)
        chosen: dict[str, object] = {}
        for name, value in body.items():
            field = known[name]
            if value is None or field.use is Use.IGNORED or _is_neutral(value, field):
                continue
            if field.use is Use.REFUSED:
                raise BridgeError(
                    Reason.UNSUPPORTED, f"{name}: {field.note}", param=name
                )
            chosen[name] = value
        return chosen


def honoured(*names: str, note: str = "") -> list[Field]:
    """List fields that are honoured, all with one note."""
    return [Field(name, Use.HONOURED, note) for name in names]


def ignored(*names: str, note: str = "") -> list[Field]:
    """List fields that are harmless and ignored."""
    return [Field(name, Use.IGNORED, note) for name in names]


def refused(*names: str, note: str, neutral: tuple[object, ...] = ()) -> list[Field]:
    """List fields that are refused unless their value asks for nothing."""
    return [Field(name, Use.REFUSED, note, neutral) for name in names]


def _is_neutral(value: object, field: Field) -> bool:
    return any(type(value) is type(each) and value == each for each in field.neutral)


def _unknown(names: list[str]) -> BridgeError:
    stated = [name[:MAX_STATED_CHARS] for name in names[:MAX_STATED_NAMES]]
    more = " and others" if len(names) > len(stated) else ""
    return BridgeError(
        Reason.UNKNOWN_FIELD,
        f"no such field: {', '.join(stated)}{more}",
        param=stated[0],
    )
