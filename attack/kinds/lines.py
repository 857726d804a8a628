"""Large lines, which take long to read as JSON."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import trio

from attack.asking import ask
from attack.lines import FULL_BYTES, large_lines
from attack.load import Bounds, Load
from attack.place import Place
from inferd import surfaces
from tests.daemon.harness import mock

KIND: Final = "lines"
N_CONNECTIONS: Final = 3
PATIENCE_S: Final = 120.0
BOUNDS: Final = Bounds(
    new_p99_ms=50,
    open_p99_ms=20,
    hostile_codes=frozenset({"invalid_request", "frame_too_large", "queue_full"}),
)
CONFIG: Final = {"backend": [mock(tokens=["x"])]}


async def send_over_and_over(place: Place, name: str) -> None:
    """Send one kind of line on three connections, again and again."""
    n_bytes = max(200_000, round(FULL_BYTES * place.scale))
    [question] = [each for each in large_lines(n_bytes) if each.name == name]
    n_asked = 0

    async def one() -> None:
        nonlocal n_asked
        while True:
            sample = await ask(place.directory, question, PATIENCE_S)
            place.tally.enter(sample)
            n_asked += 1
            if n_asked >= N_CONNECTIONS:
                place.cycled()

    async with trio.open_nursery() as nursery:
        for _ in range(N_CONNECTIONS):
            nursery.start_soon(one)
        place.begun()


def attacks() -> Iterator[Load]:
    """Give all of them: an attack for each kind of line."""
    for question in large_lines(1000):
        if question.leaf == surfaces.EMBED.socket:
            continue  # the scripted backend makes no vectors
        yield Load(
            name=f"large-{question.name.replace(' ', '-').replace('_', '-')}",
            kind=KIND,
            about=f"lines of 62 MB with {question.name}, on {N_CONNECTIONS} connections",
            run=partial(send_over_and_over, name=question.name),
            bounds=BOUNDS,
            config=CONFIG,
            is_whole=True,
            is_at_once=True,
        )
