"""The table of error codes, from the classes of ``inferd.errors``."""

from collections.abc import Iterator

from inferd import errors
from tools.documents.markdown import NOTE, first_line, table

ERRORS_INTRO = """# Error codes

A request that fails ends in one frame `{"type":"error","id":…,"code":…,"message":…}`.
Branch on `code`; `message` is for people and may change.
A code may stand for several facts, each a class of the daemon.
"Again" says whether sending the same request again later may help.

"""
PARENTS = (errors.PeerError,)
"""Classes with a code that are never raised themselves."""


def error_table() -> str:
    """Write one row for each failure a client can be told about."""
    rows = [
        (
            f"`{failure.code.value}`",
            f"`{failure.__name__}`",
            first_line(failure.__doc__),
            "closed" if failure.closes_connection else "kept",
            "yes" if failure.retryable else "no",
        )
        for code in errors.ErrorCode
        for failure in failures()
        if failure.code is code
    ]
    head = ("code", "class", "meaning", "connection", "again")
    return NOTE + ERRORS_INTRO + table(head, rows)


def failures() -> Iterator[type[errors.InferdError]]:
    """Give the classes of errors that have a code, in the order of the module."""
    for found in vars(errors).values():
        if (
            isinstance(found, type)
            and issubclass(found, errors.InferdError)
            and hasattr(found, "code")
            and found not in PARENTS
        ):
            yield found
