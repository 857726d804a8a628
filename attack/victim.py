"""The user who is attacked: plain questions, one after another, each of them timed."""

import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from attack.asking import Line, Question
from attack.measures import Sample

PAUSE_S: Final = 0.01
"""Between an answer and the next question."""


class Told(NamedTuple):
    """What the victim has seen between two words."""

    new: list[Sample]
    """Each on a connection of its own."""
    open: list[Sample]
    """All on the connection that was made at first."""


def ask_on(
    pipe: Connection,
    directory: Path,
    question: Question,
    patience_s: float,
    *,
    is_at_once: bool = True,
) -> None:
    """Ask on both connections, at once or by turns, until told to ``stop``; at ``tell``, send what was seen since the last time.

    A request that runs at ``tell`` is waited for, so that none is left out that takes
    long: each kind has one sample at least.
    """
    path = directory / question.leaf
    asking = [_Asking(path, question, patience_s, is_new=new) for new in (True, False)]
    if not is_at_once:
        asking[1].turn = asking[0].turn
    for each in asking:
        each.start()
    while pipe.recv() == "tell":
        pipe.send(Told(*(each.taken() for each in asking)))
    for each in asking:
        each.stop()


class _Asking(threading.Thread):
    def __init__(
        self, path: Path, question: Question, patience_s: float, *, is_new: bool
    ) -> None:
        super().__init__(daemon=True)
        self._line = Line(path, patience_s)
        self._question = question
        self._is_new = is_new
        self._samples: list[Sample] = []
        self._changed = threading.Condition()
        self._n_asked = 0
        self._is_over = False
        self.turn = threading.Lock()
        """Held while a request runs; two may have the same one."""

    def run(self) -> None:
        while not self._is_over:
            with self.turn:
                sample = self._line.ask(self._question)
                if self._is_new:
                    self._line.close()
            with self._changed:
                self._samples.append(sample)
                self._n_asked += 1
                self._changed.notify_all()
            time.sleep(PAUSE_S)
        self._line.close()

    def taken(self) -> list[Sample]:
        with self._changed:
            n_asked = self._n_asked
            self._changed.wait_for(lambda: self._n_asked > n_asked)
            samples, self._samples = self._samples, []
        return samples

    def stop(self) -> None:
        self._is_over = True
        self.join()
