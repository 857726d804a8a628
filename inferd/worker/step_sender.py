"""Send what steps give, where cores are left while the next one computes.

Encoding a message and writing it to the socket takes about as long as choosing a token. The
library computes a batch without the interpreter, so another thread can do it meanwhile. Where
all cores compute, that thread would take one from a thread for which all others wait.
"""

import queue
from collections.abc import Callable, Sequence

from inferd.ipc.worker import Heartbeat
from inferd.limits.worker import UNSENT_STEPS
from inferd.worker.backend import StepOutcome


class StepSender:
    """Queue of messages to the daemon, in order, and the loop that sends them.

    Args:
        send: sends one message; blocks while the daemon does not read.

    Bounds:
        ``UNSENT_STEPS`` puts that are not sent yet; a further one waits.
    """

    def __init__(self, send: Callable[[StepOutcome | Heartbeat], None]) -> None:
        self._send = send
        self._pending: queue.SimpleQueue[Sequence[StepOutcome | Heartbeat]] = (
            queue.SimpleQueue()
        )
        # Two queues without Python code: a semaphore would cost more than all else here.
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self._free_all()

    def send(
        self, messages: Sequence[StepOutcome | Heartbeat], *, beside: bool
    ) -> None:
        """Send messages after those that wait; blocks while the daemon does not read.

        One thread calls it.

        Args:
            messages: must not change any more.
            beside: whether the other thread is to send them.

        Raises:
            OSError: the daemon is gone.
        """
        if beside or self._free.qsize() < UNSENT_STEPS:
            self._put(messages)
        else:
            for message in messages:
                self._send(message)

    def _put(self, messages: Sequence[StepOutcome | Heartbeat]) -> None:
        self._free.get()
        if self._error:
            self._free.put(None)
            raise self._error
        self._pending.put(messages)

    def flush(self) -> None:
        """Wait until everything is sent or cannot be; nothing can be put afterwards."""
        for _ in range(UNSENT_STEPS):
            self._free.get()

    def send_all(self) -> None:
        """Send what is put, until the daemon is gone."""
        try:
            while True:
                for message in self._pending.get():
                    self._send(message)
                self._free.put(None)
        except OSError as error:
            self._error = error
            self._free_all()

    def _free_all(self) -> None:
        for _ in range(UNSENT_STEPS):
            self._free.put(None)
