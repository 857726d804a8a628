"""What an attacking process is given, and how it is run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import trio

from attack.asking import Question, ask
from attack.measures import Sample, Tally

PATIENCE_S: Final = 60.0
"""Seconds after which a hostile request counts as hung."""
BEGUN: Final = "begun"
CYCLED: Final = "cycled"
STOP: Final = "stop"


@dataclass
class Place:
    """Where an attack runs.

    Args:
        directory: of the daemon's sockets.
        number: of this process, from 0.
        scale: share of the attack's full size, for the tests.
    """

    directory: Path
    number: int = 0
    scale: float = 1.0
    tally: Tally = field(default_factory=Tally)
    say: Callable[[str], None] | None = None
    """Tells whoever started the attack; nobody, where there is nothing."""
    _said: set[str] = field(default_factory=set)

    def count(self, n: int) -> int:
        """Give a number of connections or requests at this size; 2 at least."""
        return max(2, round(n * self.scale))

    async def ask(self, question: Question, patience_s: float = PATIENCE_S) -> Sample:
        """Have a question answered, and take note of how."""
        sample = await ask(self.directory, question, patience_s)
        self.tally.enter(sample)
        return sample

    def begun(self) -> None:
        """Say that all connections of the attack are there."""
        self._say_once(BEGUN)

    def cycled(self) -> None:
        """Say that all requests of the attack were asked once."""
        self._say_once(CYCLED)

    def _say_once(self, word: str) -> None:
        if word not in self._said:
            self._said.add(word)
            if self.say is not None:
                self.say(word)


Run = Callable[[Place], Awaitable[None]]
"""An attack, which goes on until it is cancelled."""


def attack_at(pipe: Connection, run: Run, place: Place) -> Tally:
    """Attack until told to stop; give what became of the requests."""
    trio.run(_attack, pipe, run, place)
    return place.tally


async def _attack(pipe: Connection, run: Run, place: Place) -> None:
    place.say = pipe.send
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_await_stop, pipe, nursery.cancel_scope)
        await run(place)
        place.begun()
        place.cycled()


async def _await_stop(pipe: Connection, scope: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(pipe.fileno())
    pipe.recv()
    scope.cancel()
