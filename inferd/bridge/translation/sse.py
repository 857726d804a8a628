"""Server-sent events."""

from typing import Final

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = b": waiting\n\n"
"""A comment, which readers skip."""


def event(data: bytes, name: str = "") -> bytes:
    """Return an event.

    Args:
        data: one line.
        name: of the event; empty for none.
    """
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, data)
