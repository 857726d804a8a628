"""The clients that are connected, as a daemon sees them that reloads or drains."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import trio

from inferd.server.access import Access

LAST_CALL_S: Final = 1.0
"""Seconds, of those to drain, that a client who was let in has to ask its first question:
at an inherited socket the next one is let in by the next daemon, and loses nothing."""

HEARING_S: Final = 0.02
"""Seconds between two looks whether they have: a few turns of the event loop."""


class Guest(Protocol):
    """A connection."""

    has_asked: bool

    def end(self) -> None:
        """Close it as soon as nothing is being answered."""

    def review(self, access: Access) -> None:
        """End it if its client may no longer use the socket."""


class Guests:
    """Those who are connected to the inference sockets."""

    def __init__(self) -> None:
        self._inside: set[Guest] = set()
        self._is_closing = False
        self._left = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        """Count them."""
        return len(self._inside)

    @contextmanager
    def counting(self, guest: Guest) -> Iterator[None]:
        """Count one while inside; where all have to go, it has to go at once."""
        self._inside.add(guest)
        if self._is_closing:
            guest.end()
        try:
            yield
        finally:
            self._inside.discard(guest)
            self._left.unpark_all()

    def review(self, access: Access) -> None:
        """End those who may no longer be here."""
        for guest in self._inside:
            guest.review(access)

    async def hear(self, *, by: float) -> None:
        """Hear those who were let in and have not asked anything yet.

        Args:
            by: on trio's clock, in seconds; no longer than ``LAST_CALL_S`` in any case.
        """
        with trio.move_on_at(min(by, trio.current_time() + LAST_CALL_S)):
            have_asked = False
            while not have_asked:
                await trio.sleep(HEARING_S)
                have_asked = all(each.has_asked for each in self._inside)

    def end(self) -> None:
        """Have all go that are here or come, each as soon as it has its answers."""
        self._is_closing = True
        for guest in self._inside:
            guest.end()

    async def leave(self, *, by: float) -> None:
        """Wait for all to have their answers and go, as far as there is time."""
        with trio.move_on_at(by):
            while self._inside:
                await self._left.park()
