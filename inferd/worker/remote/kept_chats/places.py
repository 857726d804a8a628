"""Where conversations go on in chats that a bridge keeps; pure.

A client sends all of its conversation each time, and the bridge is to get the last message
alone. So each answer is remembered by what was said up to its end.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from inferd.backend.job import Turn

MAX_PLACES: Final = 4096
"""Answers that are remembered, some 200 bytes each: those of the longest ago are forgotten."""


class ChatPlace(NamedTuple):
    """An answer in a chat."""

    chat_id: str
    message_id: str


class ChatPlaces:
    """Remembers the answers of one bridge.

    Args:
        most: answers that are remembered.
    """

    def __init__(self, most: int = MAX_PLACES) -> None:
        self._most = most
        self._places: OrderedDict[bytes, ChatPlace] = OrderedDict()

    def find(self, turns: Sequence[Turn]) -> ChatPlace | None:
        """Return where a conversation goes on that has been so far; ``None`` if unknown."""
        digest = _digest(turns)
        place = self._places.get(digest)
        if place is not None:
            self._places.move_to_end(digest)
        return place

    def add(self, turns: Sequence[Turn], place: ChatPlace) -> None:
        """Remember an answer, which is the last of these turns."""
        digest = _digest(turns)
        self._places[digest] = place
        self._places.move_to_end(digest)
        if len(self._places) > self._most:
            self._places.popitem(last=False)


def _digest(turns: Sequence[Turn]) -> bytes:
    found = hashlib.sha256()
    for turn in turns:
        text = turn.text.strip().encode("utf-8", "surrogatepass")
        found.update(b"%s %d " % (turn.role.encode(), len(text)))
        found.update(text)
    return found.digest()
