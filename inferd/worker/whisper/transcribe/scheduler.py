"""Cooperative scheduling of transcription jobs: one thread per job, one runs at a time.

whisper.cpp transcribes a whole recording in one call. A job's thread blocks inside that
call, between two chunks, until it is scheduled again. So jobs share the library, and each
gets the same text as if it ran alone.
"""

import queue
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from inferd.ipc.worker import Failed
from inferd.worker.backend import RefusedError, StepOutcome
from inferd.worker.whisper.transcribe.inference import InferenceError

MS_PER_S: Final = 1000


class JobDroppedError(Exception):
    """The job was dropped."""


def always() -> bool:
    """Return true: the job can run as soon as it is scheduled."""
    return True


class JobThread:
    """The thread of one job, with the interface of the job and that of the scheduler.

    The job calls ``yield_control``, ``emit`` and ``heartbeat``. Any thread may set
    ``is_dropped``. The scheduling thread alone uses all else.

    Args:
        ticket: the job's number.
        perform: runs the job; called on its thread when it is scheduled first.
    """

    def __init__(self, ticket: int, perform: Callable[["JobThread"], None]) -> None:
        self.ticket = ticket
        self.is_dropped = False
        self.is_over = False
        self._perform = perform
        self._thread: threading.Thread | None = None
        self._scheduled = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)
        self._can_run: Callable[[], bool] = always
        self._free: Callable[[], None] | None = None
        self.park_requested = False
        self.is_parked = False
        """Whether the job is not scheduled until it is resumed."""
        self._outcomes: queue.SimpleQueue[StepOutcome] = queue.SimpleQueue()
        self._n_heartbeats = self._n_heartbeats_seen = 0
        self._started_at = 0.0
        self._computed_s = 0.0

    # --- the job's side -----------------------------------------------------------

    def yield_control(
        self,
        until: Callable[[], bool] = always,
        free: Callable[[], None] | None = None,
    ) -> None:
        """Let other jobs run, and wait until this one is scheduled again.

        Args:
            until: whether the job can go on; called on the scheduling thread.
            free: frees the memory that a parked job can do without; called on the
                scheduling thread. Without it, the job keeps its state while parked.

        Raises:
            JobDroppedError: the job was dropped.
        """
        if self.is_dropped:
            raise JobDroppedError
        self._can_run, self._free = until, free
        self._computed_s += time.monotonic() - self._started_at
        self._yielded.release()
        self._scheduled.acquire()
        self._can_run, self._free = always, None  # these may refer back to this object
        self._started_at = time.monotonic()
        if self.is_dropped:
            raise JobDroppedError

    def emit(self, outcome: StepOutcome) -> None:
        """Queue a result of the job."""
        self._outcomes.put(outcome)

    def heartbeat(self) -> bool:
        """Record progress; return whether the job was dropped."""
        self._n_heartbeats += 1
        return self.is_dropped

    @property
    def computed_ms(self) -> int:
        """Milliseconds for which the job has run so far."""
        now = time.monotonic() - self._started_at
        return round((self._computed_s + now) * MS_PER_S)

    # --- the scheduler's side -----------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the job can run."""
        return self.is_dropped or (not self.is_parked and self._can_run())

    @property
    def has_state(self) -> bool:
        """Whether the job keeps its inference state in memory while it is parked."""
        return self._thread is not None and self._free is None

    def park(self) -> None:
        """Park the job, which must not be running, and free what it does not need."""
        self.park_requested, self.is_parked = False, True
        if self._free is not None:
            self._free()

    def resume(self) -> None:
        """Run the job, starting its thread if needed, until ``wait`` returns true."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"job {self.ticket}", daemon=True
            )
            self._thread.start()
        else:
            self._scheduled.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the job yields or ends; return false if it still runs."""
        is_back = self._yielded.acquire(timeout=timeout_s)
        if is_back and self.is_over and self._thread is not None:
            self._thread.join()
        return is_back

    def outcomes(self) -> list[StepOutcome]:
        """Take the results queued since the last call."""
        found: list[StepOutcome] = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def made_progress(self) -> bool:
        """Return whether there was a heartbeat since the last call."""
        seen, self._n_heartbeats_seen = self._n_heartbeats_seen, self._n_heartbeats
        return self._n_heartbeats > seen

    def end(self) -> None:
        """Drop the job, which must not be running, and wait for its thread, if started."""
        self.is_dropped = True
        if self._thread is None:
            self.is_over = True
            return
        self.resume()
        self.wait()

    def _run(self) -> None:
        self._started_at = time.monotonic()
        try:
            self._perform(self)
        except JobDroppedError:
            pass
        except RefusedError as error:
            self._fail(str(error), by_request=True)
        except InferenceError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001  # other jobs go on
            traceback.print_exc()
            self._fail(f"transcription failed with {type(error).__name__}")
        self.is_over = True
        self._yielded.release()

    def _fail(self, reason: str, *, by_request: bool = False) -> None:
        self.emit(Failed(ticket=self.ticket, reason=reason, by_request=by_request))


class Scheduler:
    """Round-robin scheduler of job threads; only the decoding thread may use it.

    Args:
        max_parked: largest number of parked jobs that keep a state in memory.
    """

    def __init__(self, max_parked: int = 0) -> None:
        self.max_parked = max_parked
        self._threads: dict[int, JobThread] = {}
        self._running: JobThread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, can run, or can be parked."""
        return (
            self._running is not None
            or any(thread.is_ready for thread in self._threads.values())
            or any(self._can_park(thread) for thread in self._threads.values())
        )

    def __len__(self) -> int:
        return len(self._threads)

    def add(self, thread: JobThread) -> None:
        """Add a job."""
        self._threads[thread.ticket] = thread

    def pause(self, ticket: int) -> None:
        """Request that a job is parked once it yields and its state fits in memory."""
        if thread := self._threads.get(ticket):
            thread.park_requested = True

    def resume(self, ticket: int) -> None:
        """Let a parked job run again."""
        if thread := self._threads.get(ticket):
            thread.is_parked = False

    def park(self) -> list[int]:
        """Park the jobs for which it was requested, if possible; return their tickets."""
        parked: list[int] = []
        for ticket, thread in self._threads.items():
            if self._can_park(thread):
                thread.park()
                parked.append(ticket)
        return parked

    def _can_park(self, thread: JobThread) -> bool:
        if not thread.park_requested or thread is self._running:
            return False
        parked = [other for other in self._threads.values() if other.is_parked]
        n_states = sum(other.has_state for other in parked)
        return not thread.has_state or n_states < self.max_parked

    def drop(self, ticket: int) -> None:
        """Remove a job; one that runs ends at its next heartbeat."""
        thread = self._threads.pop(ticket, None)
        if thread is None:
            return
        if thread is self._running:
            thread.is_dropped = True
        else:
            thread.end()

    def interrupt(self, ticket: int) -> None:
        """Make a running job yield soon, to be dropped; any thread may call this."""
        if thread := self._threads.get(ticket):
            thread.is_dropped = True

    def step(self, timeout_s: float) -> JobThread | None:
        """Run the next job, or go on waiting for the one that runs.

        Args:
            timeout_s: seconds to wait for the job to yield.

        Returns:
            The job that ran, and may still run; ``None`` if it was dropped, or if no job
            can run.
        """
        thread = self._running or self._next()
        if thread is None:
            return None
        if thread.wait(timeout_s):
            self._running = None
            if thread.is_over:
                self._threads.pop(thread.ticket, None)
            elif thread.ticket not in self._threads:
                thread.end()  # it was dropped as it yielded
        return None if thread.is_dropped else thread

    def _next(self) -> JobThread | None:
        for ticket, thread in self._threads.items():
            if thread.is_ready:
                self._threads[ticket] = self._threads.pop(ticket)  # behind all others
                self._running = thread
                thread.resume()
                return thread
        return None
