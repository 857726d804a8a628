"""What the daemon notifies systemd of."""

import time
from collections.abc import Mapping

import trio

from inferd.limits.engine import LOAD_SILENCE_S
from inferd.service.notify import MICROSECONDS, ServiceNotifier
from inferd.service.start_failure import DID_NOT_START
from inferd.wire.status import LifecycleFrame, StatusFrame


class Notifier(ServiceNotifier):
    """Sender of notifications to the service manager; does nothing without one.

    Args:
        environ: with ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``, if set.
        load_silence_s: seconds without progress that a worker may take while it loads; the
            start timeout is extended by as much at each sign of progress, and that of a
            reload until it is over.
    """

    def __init__(
        self, environ: Mapping[str, str], *, load_silence_s: float = LOAD_SILENCE_S
    ) -> None:
        super().__init__(environ)
        self._load_silence_s = load_silence_s
        self._extension_us = int(load_silence_s * MICROSECONDS)

    def reloading(self) -> None:
        """Notify that the configuration is read again; ``ready`` ends that."""
        now_us = time.monotonic_ns() // 1000
        self.send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    async def extend_timeout(self) -> None:
        """Extend the timeout of a reload again and again, until cancelled.

        A reload ends by itself: a load without progress is ended after ``load_silence_s``, and
        so is a worker whose requests make none. What takes long beside that are requests that
        end before their model is replaced, and systemd would give them ``TimeoutStartSec``.
        """
        while True:
            self.send(f"EXTEND_TIMEOUT_USEC={self._extension_us}")
            await trio.sleep(self._load_silence_s / 2)

    def failed(self, reason: str) -> None:
        """Notify why the daemon did not start."""
        self.send(f"STATUS={DID_NOT_START}{' '.join(reason.split())}")

    def follow(self, frame: StatusFrame) -> None:
        """Send a status frame as STATUS; extend the start timeout while a model loads."""
        match frame:
            case LifecycleFrame(status="loading_model", phase=phase):
                extension = f"EXTEND_TIMEOUT_USEC={self._extension_us}"
                self.send(f"STATUS=loading: {phase}\n{extension}")
            case LifecycleFrame(status="restarting", backend=backend):
                self.send(f"STATUS=restarting {backend}")
            case LifecycleFrame(status="ready"):
                self.send("STATUS=ready")
            case _:
                pass
