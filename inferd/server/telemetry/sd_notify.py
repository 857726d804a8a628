"""Notifications to systemd: the protocol of sd_notify(3), one datagram per message."""

import os
import socket
import time
from collections.abc import Mapping

import trio

from inferd.limits.engine import LOAD_SILENCE_S
from inferd.service.start_failure import DID_NOT_START
from inferd.wire.status import LifecycleFrame, StatusFrame

_MICROSECONDS = 1_000_000


class Notifier:
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
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._load_silence_s = load_silence_s
        self._extension_us = int(load_silence_s * _MICROSECONDS)
        is_for_us = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._watchdog_us = int(environ.get("WATCHDOG_USEC", 0)) if is_for_us else 0

    def ready(self) -> None:
        """Notify that the daemon serves."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Notify that the configuration is read again; ``ready`` ends that."""
        now_us = time.monotonic_ns() // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    async def extend_timeout(self) -> None:
        """Extend the timeout of a reload again and again, until cancelled.

        A reload ends by itself: a load without progress is ended after ``load_silence_s``, and
        so is a worker whose requests make none. What takes long beside that are requests that
        end before their model is replaced, and systemd would give them ``TimeoutStartSec``.
        """
        while True:
            self._send(f"EXTEND_TIMEOUT_USEC={self._extension_us}")
            await trio.sleep(self._load_silence_s / 2)

    def stopping(self) -> None:
        """Notify that the daemon drains."""
        self._send("STOPPING=1\nSTATUS=draining")

    def failed(self, reason: str) -> None:
        """Notify why the daemon did not start."""
        self._send(f"STATUS={DID_NOT_START}{' '.join(reason.split())}")

    def follow(self, frame: StatusFrame) -> None:
        """Send a status frame as STATUS; extend the start timeout while a model loads."""
        match frame:
            case LifecycleFrame(status="loading_model", phase=phase):
                extension = f"EXTEND_TIMEOUT_USEC={self._extension_us}"
                self._send(f"STATUS=loading: {phase}\n{extension}")
            case LifecycleFrame(status="restarting", backend=backend):
                self._send(f"STATUS=restarting {backend}")
            case LifecycleFrame(status="ready"):
                self._send("STATUS=ready")
            case _:
                pass

    async def feed_watchdog(self) -> None:
        """Send WATCHDOG=1 from the event loop at twice the required rate."""
        if not self._watchdog_us:
            return
        while True:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_us / _MICROSECONDS / 2)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, flags) as sock:
            try:
                sock.sendto(message.encode(), self._address)
            except OSError:
                return  # a missing or busy manager must not end the daemon
