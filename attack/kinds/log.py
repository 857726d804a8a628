"""Work that is refused pushes no other user's lines out of the log."""

from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import trio

from attack.asking import Line, Question, plain
from attack.kinds.loop import BROKEN_LINE, CANCEL, REFUSED_LINE, on_many, pour_and_read
from attack.measures import Sample, Tally
from attack.place import STOP, Place, Run, attack_at
from attack.probe import Probe
from attack.scene import Scene, SkippedError, person, victim
from attack.target import is_root
from inferd import surfaces
from tests.daemon.harness import mock

KIND: Final = "log"
CONFIG: Final = {
    "backend": [mock(tokens=["x"])],
    "log": {"max_bytes": 65_536, "generations": 3},
}
KEPT: Final = "kept-by-the-log"
N_ANSWERED: Final = 20_000
"""Lines that are refused: several times what the log has room for, a line each."""
SECONDS: Final = 30.0
PATIENCE_S: Final = 20.0


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    floods = {
        "refusals": ("requests that are refused", REFUSED_LINE),
        "broken-lines": ("lines that cannot be read", BROKEN_LINE),
        "cancels": ("cancels of nothing", CANCEL),
    }
    for name, (about, line) in floods.items():
        yield Probe(
            name=f"log-{name}",
            kind=KIND,
            about=f"push another user's line out of the log, by {about}",
            try_in=partial(_flood, line=line),
        )


def _flood(scene: Scene, line: bytes) -> None:
    if not is_root():
        raise SkippedError("needs root, to be two users")
    with scene.daemon(CONFIG) as daemon, victim() as one, person() as other:
        question = plain("x")
        question = Question(
            question.leaf, question.line.replace(b'"id":""', f'"id":"{KEPT}"'.encode())
        )
        sample = one.call(_ask, daemon.directory, question)
        scene.require("the victim is served", sample.code == "done", sample.code)
        run: Run = partial(_until_enough, line=line)
        other.begin(attack_at, run, Place(daemon.directory, scale=scene.scale))
        while other.result() != "cycled":
            pass
        other.tell(STOP)
        found = other.result()
        while not isinstance(found, Tally):
            found = other.result()
        scene.codes = dict(found.codes)
        scene.require(
            "the victim's line is in the log", KEPT in daemon.kept_log(), "it is gone"
        )


def _ask(pipe: Connection, directory: Path, question: Question) -> Sample:
    line = Line(directory / question.leaf, PATIENCE_S)
    try:
        return line.ask(question)
    finally:
        line.close()


async def _until_enough(place: Place, *, line: bytes) -> None:
    go_on = partial(pour_and_read, line=line)
    flood = partial(on_many, n_connections=64, leaf=surfaces.INFER.socket, go_on=go_on)
    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, place)
            while place.tally.codes["answered"] < place.count(N_ANSWERED):
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    await trio.sleep(1)
