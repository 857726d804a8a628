"""Send what steps give while the next one computes.

Encoding a message and writing it to the socket takes about as long as choosing a token. The
library computes a batch without the interpreter, so another thread does it meanwhile.
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

    def put(self, messages: Sequence[StepOutcome | Heartbeat]) -> None:
        """Have messages sent; they must not change any more.

        Blocks while as many wait as may. One thread calls it.

        Raises:
            OSError: the daemon is gone.
        """
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
