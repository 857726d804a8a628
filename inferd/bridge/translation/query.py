"""The parameters behind the path of a request, and pages of a list; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct

from inferd.bridge.translation.body import convert
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.fields import FieldTable
from inferd.limits.bridge import MAX_STATED_CHARS

T = TypeVar("T", bound=Struct)


class NoQuery(Struct, frozen=True):
    """The honoured parameters of routes that have none."""


@dataclass(frozen=True)
class QueryForm:
    """What a route takes behind its path.

    Args:
        table: its parameters.
        kind: the type of the honoured ones; each has a default.
    """

    table: FieldTable
    kind: type[Struct] = NoQuery


NO_QUERY: Final = QueryForm(FieldTable("Query parameters of all routes", ()))
"""Of routes that take none."""


def read_query(query: bytes, table: FieldTable, kind: type[T]) -> T:
    """Give the parameters of a request their types, as ``read_body`` does with fields.

    Raises:
        BridgeError: one is unknown, refused, there twice, or has another type.
    """
    found: dict[str, object] = {}
    if query:
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict"
            )
        except ValueError as error:
            text = "what follows ? in the address is not UTF-8 in %XX"
            raise BridgeError(Reason.INVALID_REQUEST, text) from error
        for name, value in pairs:
            if name in found:
                raise invalid(name[:MAX_STATED_CHARS], "is there twice")
            found[name] = value
    return convert(table.select(found), kind, is_strict=False)


def page_of(
    names: Sequence[str], n_most: int, *, after: str = "", before: str = ""
) -> tuple[range, bool]:
    """Choose a page of a list.

    Args:
        names: of all entries, in order.
        n_most: entries of the page.
        after: the page begins behind this one; empty for the first.
        before: instead, the page ends before this one.

    Returns:
        The places of the page's entries, and whether there are more beyond it.

    Raises:
        ValueError: the list has no such entry.
    """
    if before:
        end = names.index(before)
        return range(max(0, end - n_most), end), end > n_most
    start = names.index(after) + 1 if after else 0
    end = min(start + n_most, len(names))
    return range(start, end), end < len(names)
