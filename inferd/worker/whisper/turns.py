"""Jobs that take turns: each on a thread of its own, and one of them computes at a time.

whisper.cpp hears a whole sound in one call. A job's thread stands still inside that call,
between two chunks, until it is its turn again: so many share the library, each with the
text that it would have alone.
"""

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from inferd.ipc import Failed
from inferd.worker.backend import Outcome, RefusedError
from inferd.worker.whisper.listening import ListeningError

MS_PER_S: Final = 1000


class DroppedError(Exception):
    """Nobody wants the job any more."""


def always() -> bool:
    """Take a turn as soon as there is one."""
    return True


class Turn:
    """A job's thread, as both sides see it.

    ``pause``, ``tell`` and ``beat`` are called by the job; ``is_dropped`` may be set by any
    thread; all else is called by the thread that gives turns.

    Args:
        ticket: the job's number.
        perform: the job; on its thread, from its first turn on.
    """

    def __init__(self, ticket: int, perform: Callable[["Turn"], None]) -> None:
        self.ticket = ticket
        self.is_dropped = False
        self.is_over = False
        self._perform = perform
        self._thread: threading.Thread | None = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._wants: Callable[[], bool] = always
        self._rest: Callable[[], None] | None = None
        self.is_to_rest = False
        self.is_resting = False
        """Whether it gets no turn, whatever it wants."""
        self._told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._n_beats = self._n_beats_seen = 0
        self._began = 0.0
        self._computed_s = 0.0

    # --- the job's side -----------------------------------------------------------

    def pause(
        self,
        until: Callable[[], bool] = always,
        rest: Callable[[], None] | None = None,
    ) -> None:
        """Let others compute, and wait for the next turn.

        Args:
            until: whether it is any use; asked by the other thread.
            rest: frees what a job that stands still has no use for; called by the other
                thread. Without it there is nothing that could be freed.

        Raises:
            DroppedError: there is none.
        """
        if self.is_dropped:
            raise DroppedError
        self._wants, self._rest = until, rest
        self._computed_s += time.monotonic() - self._began
        self._back.release()
        self._go.acquire()
        self._wants, self._rest = always, None  # these may hold on to this
        self._began = time.monotonic()
        if self.is_dropped:
            raise DroppedError

    def tell(self, outcome: Outcome) -> None:
        """Say what came of it."""
        self._told.put(outcome)

    def beat(self) -> bool:
        """Note that it gets on; tell whether it was dropped."""
        self._n_beats += 1
        return self.is_dropped

    @property
    def computed_ms(self) -> int:
        """Milliseconds that its turns took, up to now."""
        now = time.monotonic() - self._began
        return round((self._computed_s + now) * MS_PER_S)

    # --- the other side -----------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether a turn would be any use."""
        return self.is_dropped or (not self.is_resting and self._wants())

    @property
    def has_state(self) -> bool:
        """Whether it has something in memory that it cannot do without."""
        return self._thread is not None and self._rest is None

    def rest(self) -> None:
        """Have it stand still; it has no turn."""
        self.is_to_rest, self.is_resting = False, True
        if self._rest is not None:
            self._rest()

    def resume(self) -> None:
        """Give it the turn, which it has until ``wait`` says that it is back."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"job {self.ticket}", daemon=True
            )
            self._thread.start()
        else:
            self._go.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it gives the turn back; false if it still has it."""
        is_back = self._back.acquire(timeout=timeout_s)
        if is_back and self.is_over and self._thread is not None:
            self._thread.join()
        return is_back

    def outcomes(self) -> list[Outcome]:
        """Take what it has said since it was last asked."""
        found: list[Outcome] = []
        while not self._told.empty():
            found.append(self._told.get())
        return found

    def has_beaten(self) -> bool:
        """Tell whether it got on since it was last asked."""
        seen, self._n_beats_seen = self._n_beats_seen, self._n_beats
        return self._n_beats > seen

    def end(self) -> None:
        """Drop it, and wait for its end where it has no turn; its thread may never begin."""
        self.is_dropped = True
        if self._thread is None:
            self.is_over = True
            return
        self.resume()
        self.wait()

    def _run(self) -> None:
        self._began = time.monotonic()
        try:
            self._perform(self)
        except DroppedError:
            pass
        except RefusedError as error:
            self._fail(str(error), by_request=True)
        except ListeningError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001  # one bad job is not the others' end
            traceback.print_exc()
            self._fail(f"hearing it failed with {type(error).__name__}")
        self.is_over = True
        self._back.release()

    def _fail(self, reason: str, *, by_request: bool = False) -> None:
        self.tell(Failed(ticket=self.ticket, reason=reason, by_request=by_request))


class Ring:
    """Gives turns, to each in order; the one thread that decodes may use it.

    Args:
        max_resting: jobs that stand still with a state in memory.
    """

    def __init__(self, max_resting: int = 0) -> None:
        self.max_resting = max_resting
        self._turns: dict[int, Turn] = {}
        self._computing: Turn | None = None

    @property
    def is_busy(self) -> bool:
        """Whether anybody computes, or wants to."""
        return (
            self._computing is not None
            or any(turn.wants for turn in self._turns.values())
            or any(self._may_rest(turn) for turn in self._turns.values())
        )

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, turn: Turn) -> None:
        """Let a job take part."""
        self._turns[turn.ticket] = turn

    def pause(self, ticket: int) -> None:
        """Have a job rest once it has no turn, and there is memory for its state."""
        if turn := self._turns.get(ticket):
            turn.is_to_rest = True

    def resume(self, ticket: int) -> None:
        """Let a job that rests take part again."""
        if turn := self._turns.get(ticket):
            turn.is_resting = False

    def rest(self) -> list[int]:
        """Have those rest that are to and may; give their tickets."""
        rested: list[int] = []
        for ticket, turn in self._turns.items():
            if self._may_rest(turn):
                turn.rest()
                rested.append(ticket)
        return rested

    def _may_rest(self, turn: Turn) -> bool:
        if not turn.is_to_rest or turn is self._computing:
            return False
        resting = [each for each in self._turns.values() if each.is_resting]
        n_states = sum(each.has_state for each in resting)
        return not turn.has_state or n_states < self.max_resting

    def drop(self, ticket: int) -> None:
        """Let a job go; if it has the turn, it gives it back as soon as it can."""
        turn = self._turns.pop(ticket, None)
        if turn is None:
            return
        if turn is self._computing:
            turn.is_dropped = True
        else:
            turn.end()

    def interrupt(self, ticket: int) -> None:
        """Have a job give back the turn soon, to be dropped; any thread may."""
        if turn := self._turns.get(ticket):
            turn.is_dropped = True

    def step(self, timeout_s: float) -> Turn | None:
        """Give the next one a turn, or go on with one that has it.

        Returns:
            The one that has, or had, the turn; ``None`` if it was dropped, or if nobody
            wants one. It may have it still.
        """
        turn = self._computing or self._next()
        if turn is None:
            return None
        if turn.wait(timeout_s):
            self._computing = None
            if turn.is_over:
                self._turns.pop(turn.ticket, None)
            elif turn.ticket not in self._turns:
                turn.end()  # it was dropped as it gave the turn back
        return None if turn.is_dropped else turn

    def _next(self) -> Turn | None:
        for ticket, turn in self._turns.items():
            if turn.wants:
                self._turns[ticket] = self._turns.pop(ticket)  # behind all others
                self._computing = turn
                turn.resume()
                return turn
        return None
