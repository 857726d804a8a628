"""Where conversations go on in chats that a bridge keeps; pure.

A client sends all of its conversation each time, and the bridge is to get the last message
alone. So each answer is remembered by what was said up to its end, for each user apart: who
has said the same is not led into another's chat, and does not learn that there is one.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from inferd.backend.job import Turn

MAX_PLACES: Final = 4096
"""Answers that are remembered, some 200 bytes each. Then the one of the longest ago is forgotten
of the user who has most."""


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
        self._by_owner: dict[int, OrderedDict[bytes, ChatPlace]] = {}

    def find(self, owner: int, turns: Sequence[Turn]) -> ChatPlace | None:
        """Return where a user's conversation goes on that has been so far; ``None`` if unknown."""
        places = self._by_owner.get(owner, OrderedDict())
        digest = _digest(turns)
        place = places.get(digest)
        if place is not None:
            places.move_to_end(digest)
        return place

    def add(self, owner: int, turns: Sequence[Turn], place: ChatPlace) -> None:
        """Remember an answer, which is the last of these turns."""
        places = self._by_owner.setdefault(owner, OrderedDict())
        digest = _digest(turns)
        places[digest] = place
        places.move_to_end(digest)
        if sum(map(len, self._by_owner.values())) > self._most:
            most, largest = max(self._by_owner.items(), key=lambda each: len(each[1]))
            largest.popitem(last=False)
            if not largest:
                del self._by_owner[most]


def _digest(turns: Sequence[Turn]) -> bytes:
    found = hashlib.sha256()
    for turn in turns:
        text = turn.text.strip().encode("utf-8", "surrogatepass")
        found.update(b"%s %d " % (turn.role.encode(), len(text)))
        found.update(text)
    return found.digest()
