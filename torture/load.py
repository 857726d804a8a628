"""Clients that ask all the time, and somebody who kills workers meanwhile."""

import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from tests.daemon.connection import TERMINAL, Frame
from torture.clients import Ledger, Question, ask, essence
from torture.victim import Victim

POLL_S: Final = 0.004
"""Seconds between two looks at what others do."""
STUCK_S: Final = 60.0
"""Seconds in which a daemon has to get over a death."""
KILL_WITHIN_S: Final = 0.03
"""Seconds, at most, between a moment to kill and the kill."""
RUSHED: Final = 0.1
"""Share of the kills that do not wait for the worker to have served."""


async def eventually(is_so: Callable[[], bool], *, within_s: float = STUCK_S) -> bool:
    """Look until something is so; false if it is not in time."""
    with trio.move_on_after(within_s):
        while not is_so():
            await trio.sleep(POLL_S)
        return True
    return False


async def undisturbed(
    directory: Path, questions: Sequence[Question]
) -> dict[Question, str]:
    """Ask each question alone; give what has to be answered from now on."""
    expected: dict[Question, str] = {}
    for at, question in enumerate(questions):
        answer = await ask(directory, question, f"first-{at}")
        if not answer.is_whole or answer.code:
            raise AssertionError(f"an undisturbed request ended in {answer.last}")
        expected[question] = essence(answer.frames)
    return expected


class Load:
    """A number of clients, each with one request after another.

    Args:
        directory: where the sockets are.
        expected: the questions, and the essence of their answers.
        rng: by which each client chooses.
        n_clients: that ask at once.
    """

    def __init__(
        self,
        directory: Path,
        expected: Mapping[Question, str],
        rng: random.Random,
        *,
        n_clients: int,
    ) -> None:
        self.ledger = Ledger(expected)
        self.n_streaming = 0
        """Requests that have begun to be answered and have not ended."""
        self._directory = directory
        self._questions = list(expected)
        self._rng = rng
        self._n_clients = n_clients
        self._is_over = False

    def stop(self) -> None:
        """Have every client end once its request has."""
        self._is_over = True

    async def run(self) -> None:
        """Ask until stopped."""
        self._is_over = False
        async with trio.open_nursery() as nursery:
            for client in range(self._n_clients):
                nursery.start_soon(self._ask_on, client)

    async def _ask_on(self, client: int) -> None:
        n_asked = 0
        while not self._is_over:
            n_asked += 1
            question = self._rng.choice(self._questions)
            await self._ask(question, f"{client}-{n_asked}")

    async def _ask(self, question: Question, request_id: str) -> None:
        streaming = 0

        def heard(frame: Frame) -> None:
            nonlocal streaming
            is_streaming = frame["type"] not in TERMINAL
            self.n_streaming += is_streaming - streaming
            streaming = is_streaming

        answer = await ask(self._directory, question, request_id, heard=heard)
        self.n_streaming -= streaming
        self.ledger.enter(question, answer)
        if answer.is_refused or answer.code:
            await trio.sleep(POLL_S)


class Killer:
    """Kills a daemon's workers at moments that follow from a seed.

    Args:
        daemon: whose workers they are.
        load: what they work at.
        rng: that chooses moment and signal.
        signals: to choose from.
        spared: workers that are left alone.
    """

    def __init__(
        self,
        daemon: Victim,
        load: Load,
        rng: random.Random,
        *,
        signals: Sequence[signal.Signals],
        spared: frozenset[int] = frozenset(),
    ) -> None:
        self._daemon = daemon
        self._load = load
        self._rng = rng
        self._signals = signals
        self._spared = spared
        self.n_kills = 0
        self.recoveries: list[float] = []
        """Seconds from a kill to the next answer in full."""

    async def kill_times(self, n_kills: int) -> None:
        """Kill so often.

        Raises:
            AssertionError: the daemon does not get over it.
        """
        while self.n_kills < n_kills:
            await self.kill_once()

    async def kill_once(self) -> None:
        """Kill a worker, mostly one that has served and is at it again."""
        if self._rng.random() > RUSHED:
            await self._until(lambda: self._load.n_streaming > 0, "nobody is answered")
        await self._until(self._targets, "there is no worker")
        await trio.sleep(self._rng.random() * KILL_WITHIN_S)
        targets = self._targets()
        if not targets:
            return  # it has died of something else
        n_done = self._load.ledger.n_done
        killed_at = trio.current_time()
        os.kill(targets[0], self._rng.choice(self._signals))
        self.n_kills += 1
        await self._until(lambda: targets[0] not in self._targets(), "it lives on")
        if self._rng.random() > RUSHED:
            await self._until(lambda: self._load.ledger.n_done > n_done, "all is quiet")
            self.recoveries.append(trio.current_time() - killed_at)

    def _targets(self) -> list[int]:
        return [pid for pid in self._daemon.workers() if pid not in self._spared]

    async def _until(self, is_so: Callable[[], object], otherwise: str) -> None:
        if not await eventually(lambda: bool(is_so())):
            raise AssertionError(f"after {self.n_kills} kills: {otherwise}")
