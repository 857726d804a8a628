"""Notifications to systemd: the protocol of sd_notify(3), one datagram per message."""

import os
import socket
from collections.abc import Mapping

import trio

MICROSECONDS = 1_000_000
"""In a second."""


class ServiceNotifier:
    """Sender of notifications to the service manager; does nothing without one.

    Args:
        environ: with ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``, if set.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        is_for_us = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._watchdog_us = int(environ.get("WATCHDOG_USEC", 0)) if is_for_us else 0

    def ready(self) -> None:
        """Notify that the service serves."""
        self.send("READY=1")

    def stopping(self) -> None:
        """Notify that the service drains."""
        self.send("STOPPING=1\nSTATUS=draining")

    async def feed_watchdog(self) -> None:
        """Send WATCHDOG=1 from the event loop at twice the required rate."""
        if not self._watchdog_us:
            return
        while True:
            self.send("WATCHDOG=1")
            await trio.sleep(self._watchdog_us / MICROSECONDS / 2)

    def send(self, message: str) -> None:
        """Send assignments, each in a line."""
        if not self._address:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, flags) as sock:
            try:
                sock.sendto(message.encode(), self._address)
            except OSError:
                return  # a missing or busy manager must not end the service
